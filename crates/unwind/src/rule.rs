//! The step from a frame to its caller in 64 bits: the module in the upper 16, the rest as
//! described in the processor's file of [`crate::arch`].

use crate::arch;
pub use crate::step::{Bp, Cfa, Ra, Step, Usual};

/// A packed rule. It is never zero, so that zero can mean "unknown".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule(u64);

/// Set in each rule, so that none is 0.
const RULE: u64 = 1 << 7;

impl Rule {
    /// Packs a step found in module `module`. A step whose numbers do not fit becomes
    /// [`Step::Unknown`]; frames beyond 8 MiB do not occur.
    pub fn new(step: Step, module: u16) -> Rule {
        Rule(RULE | arch::pack(step).unwrap_or(arch::UNKNOWN) | (module as u64) << 48)
    }

    /// Returns the rule with these bits, which [`Rule::bits`] returned; `None` for 0.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Option<Rule> {
        if bits == 0 { None } else { Some(Rule(bits)) }
    }

    /// Returns the packed form.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the index of the module that contains the rule; 0 for code outside of modules.
    #[inline(always)]
    pub fn module(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Returns the numbers of a rule whose CFA is a register plus an offset, whose return address
    /// is on the stack, and whose bp is unchanged or saved relative to the CFA.
    #[inline(always)]
    pub fn usual(self) -> Option<Usual> {
        arch::usual(self.0)
    }

    /// Unpacks the rule.
    #[inline(always)]
    pub fn step(self) -> Step {
        arch::step(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_its_module_and_is_not_zero() {
        let frame = Step::Frame(Cfa::Sp(16), Bp::AtCfa(-16), Ra::AtCfa(-8));
        for step in [frame, Step::End, Step::Unknown, Step::Signal, Step::FramePointer] {
            assert_eq!(Rule::new(step, 0xfffe).step(), step);
            assert_eq!(Rule::new(step, 0xfffe).module(), 0xfffe);
            assert_ne!(Rule::new(step, 0).bits(), 0);
        }
    }

    #[test]
    fn steps_that_do_not_fit_are_unknown() {
        let odd = Step::Frame(Cfa::Sp(16), Bp::AtCfa(-12), Ra::AtCfa(-8));
        assert_eq!(Rule::new(odd, 1).step(), Step::Unknown);
    }
}
