//! Converts symbols of Fortran procedures in modules to their names in the source:
//! `__solver_MOD_step` of gfortran and `_QMsolverPstep` of flang become `solver::step`.

/// Separates the module from the procedure in symbols of gfortran.
const MOD: &str = "_MOD_";

/// Returns the name of a procedure in a module; `None` if the symbol is not that of one. Text after
/// the identifier, such as `.constprop.0`, is kept.
pub(super) fn readable(symbol: &str) -> Option<String> {
    let end = symbol.find(|c: char| !is_of_name(c) && !c.is_ascii_uppercase());
    let (identifier, after) = symbol.split_at(end.unwrap_or(symbol.len()));
    let parts = of_gfortran(identifier).or_else(|| of_flang(identifier))?;
    let is_name = |part: &&str| !part.is_empty() && part.chars().all(is_of_name);
    parts.iter().all(is_name).then(|| parts.join("::") + after)
}

/// Returns whether names have the character; compilers convert them to lower case.
fn is_of_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

fn of_gfortran(identifier: &str) -> Option<Vec<&str>> {
    let (module, procedure) = identifier.strip_prefix("__")?.split_once(MOD)?;
    Some(vec![module, procedure])
}

/// Splits a symbol of flang: `M` precedes a module, `S` a submodule, `F` an enclosing procedure,
/// and `P` the procedure.
fn of_flang(identifier: &str) -> Option<Vec<&str>> {
    let scoped = identifier.strip_prefix("_Q").filter(|rest| rest.starts_with(['M', 'F']))?;
    let starts = scoped.char_indices().filter(|(_, c)| c.is_ascii_uppercase());
    let starts: Vec<(usize, char)> = starts.collect();
    let ends = starts.iter().skip(1).map(|start| start.0).chain([scoped.len()]);
    let is_scope = |&(_, kind): &(usize, char)| matches!(kind, 'M' | 'S' | 'F');
    let (last, outer) = starts.split_last()?;
    let is_procedure = last.1 == 'P' && outer.iter().all(is_scope);
    is_procedure
        .then(|| starts.iter().zip(ends).map(|(start, end)| &scoped[start.0 + 1..end]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_have_the_names_of_their_source() {
        for (symbol, name) in [
            ("__solver_MOD_step", Some("solver::step")),
            ("__solver_MOD_step.constprop.0", Some("solver::step.constprop.0")),
            ("__my_mod_MOD___copy_list", Some("my_mod::__copy_list")),
            ("_QMsolverPstep", Some("solver::step")),
            ("_QMsolverSpartPstep", Some("solver::part::step")),
            ("_QMsolverFstepPinner", Some("solver::step::inner")),
            ("_QQmain", None),
            ("_QMsolverEtable", None),
            ("__solver_MOD_", None),
            ("__MOD_step", None),
            ("step_", None),
            ("__Loud_MOD_step", None),
            ("operator new(unsigned long)", None),
        ] {
            assert_eq!(readable(symbol).as_deref(), name, "{symbol}");
        }
    }
}
