//! Converts names of C functions that Cython generates to those of Python functions
//! (`Cython/Compiler/Naming.py`): `__pyx_pw_6pandas_5_libs_3lib_17infer_dtype` becomes
//! `pandas._libs.lib.infer_dtype`.

/// Prefixes before the scopes of a function: the wrapper called by Python, the function, a function
/// called only from C, and the body of a generator.
const KINDS: [&str; 4] = ["__pyx_pw_", "__pyx_pf_", "__pyx_f_", "__pyx_gb_"];
/// A further prefix, followed by a number: a function specialized for one of several types.
const FUSED: &str = "__pyx_fuse_";

/// Returns the Python name of a C function; `None` if Cython did not generate it. Text after the
/// identifier, such as parameters, is kept.
pub(super) fn readable(function: &str) -> Option<String> {
    let fused = function.strip_prefix(FUSED).map(without_number);
    let kind = fused.unwrap_or(function);
    let scoped = KINDS.iter().find_map(|start| kind.strip_prefix(start))?;
    let end = scoped.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(scoped.len());
    let (mut rest, after) = scoped.split_at(end);
    let mut name = String::new();
    while let Some((scope, inside)) = scope(rest) {
        name.push_str(scope);
        name.push('.');
        rest = inside;
    }
    let own = without_number(rest);
    (!name.is_empty() && !own.is_empty()).then(|| name + own + after)
}

/// Removes the number of the function in its scope.
fn without_number(name: &str) -> &str {
    name.trim_start_matches(|c: char| c.is_ascii_digit())
}

/// Splits off the outermost scope of a name, which is preceded by its length.
fn scope(name: &str) -> Option<(&str, &str)> {
    let digits = name.find(|c: char| !c.is_ascii_digit())?;
    let length: usize = name[..digits].parse().ok()?;
    let (scope, inside) = name[digits..].split_at_checked(length)?;
    let is_name = scope.contains(char::is_alphanumeric); // else it is part of a name: `1__get__`
    Some((scope, inside.strip_prefix('_')?)).filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_names_of_their_source() {
        for (function, name) in [
            ("__pyx_pw_2cy_1cy_alloc", "cy.cy_alloc"),
            ("__pyx_pf_2cy_3Box_fill", "cy.Box.fill"),
            ("__pyx_pw_2cy_3Box_1x_1__get__", "cy.Box.x.__get__"),
            ("__pyx_pw_7pyarrow_3lib_199array(_object*)", "pyarrow.lib.array(_object*)"),
            ("__pyx_f_5numpy_6random_7_common_cont", "numpy.random._common.cont"),
            ("__pyx_pf_2cy_5outer_1inner.isra.0", "cy.outer.inner.isra.0"),
            ("__pyx_fuse_0__pyx_f_5numpy_6random_7_common_check", "numpy.random._common.check"),
            ("__pyx_pf_7pyarrow_3lib_26_build_info", "pyarrow.lib._build_info"),
            ("__pyx_gb_2cy_4generator", "cy.generator"),
        ] {
            assert_eq!(readable(function).as_deref(), Some(name), "{function}");
        }
        for other in [
            "main",
            "__pyx_pw_",
            "__pyx_pw_x",
            "__pyx_pw_2cy_",
            "__pyx_pw_99cy_1f",
            "__pyx_pw_3äö_1f",
        ] {
            assert_eq!(readable(other), None, "{other}");
        }
    }
}
