//! The threads of a row: their number and ids.

use heaptide_analysis::model::Lane;
use heaptide_analysis::quantity::counted;

/// Maximum number of listed ids; of more, the first ones and the last.
const LISTED: usize = 4;

/// Formats the threads of a lane, such as `1 thread, tid 4242` or
/// `9 threads, tids 4242, 4243, 4250, … 4311`.
pub fn threads(lane: &Lane) -> String {
    let threads = counted(lane.threads.into(), "thread");
    match tids(lane) {
        tids if tids.is_empty() => threads,
        tids if lane.tids.len() == 1 => format!("{threads}, tid {tids}"),
        tids => format!("{threads}, tids {tids}"),
    }
}

/// Formats only the ids, such as `4242, 4243, 4250, … 4311`.
pub fn tids(lane: &Lane) -> String {
    let all: Vec<String> = lane.tids.iter().map(u32::to_string).collect();
    match &all[..] {
        [first @ .., last] if all.len() > LISTED => {
            format!("{}, … {last}", first[..LISTED - 1].join(", "))
        }
        all => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::Measures;

    #[test]
    fn few_numbers_are_listed() {
        let says = |threads, tids: &[u32]| {
            let (name, measures) = ("worker".to_owned(), Measures::default());
            super::threads(&Lane { name, threads, tids: tids.to_vec(), measures })
        };
        assert_eq!(says(1, &[7]), "1 thread, tid 7");
        assert_eq!(says(4, &[7, 8, 9, 12]), "4 threads, tids 7, 8, 9, 12");
        assert_eq!(says(5, &[7, 8, 9, 12, 13]), "5 threads, tids 7, 8, 9, … 13");
        assert_eq!(says(3, &[]), "3 threads");
    }
}
