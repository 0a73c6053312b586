//! Registers and stack words to frames.
#![no_std]
#![forbid(unsafe_code)]
