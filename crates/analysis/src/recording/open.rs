//! Opens recordings, sealed or not, finished or running.

use std::path::Path;

use super::ending::{self, Outside};
use super::parts::{Choice, Parts};
use crate::error::Error;
use crate::model::{End, Process, Recording};
use crate::profile::reader;
use crate::symbols::{Blazesym, Engine, Lookup, Sources, Symbols};
use crate::tables::ending::Ending;
use crate::tables::process;

impl Recording {
    /// Reads a recording: a directory, or a single profile file. Addresses without stored symbols
    /// are looked up.
    ///
    /// Errors: the path does not exist, or nothing in it can be read. If only a part of a recording
    /// can be read, the remaining files are in `damaged`.
    ///
    /// ```
    /// use heaptide_analysis::model::Recording;
    /// let error = Recording::open("missing.heaptide".as_ref()).unwrap_err();
    /// let text = "missing.heaptide: no such recording; create one with `heaptide run -- PROGRAM`";
    /// assert_eq!(error.to_string(), text);
    /// ```
    pub fn open(path: &Path) -> Result<Recording, Error> {
        Recording::open_of(path, &Choice::default())
    }

    /// Reads a snapshot, or the counters from the start regardless of a reset.
    ///
    /// Errors: the same as those of [`Recording::open`]; or no process has such a snapshot.
    ///
    /// ```
    /// use heaptide_analysis::model::Recording;
    /// use heaptide_analysis::recording::Choice;
    /// use heaptide_analysis::recording::snapshot::Reference;
    /// let choice = Choice { snapshot: Some(Reference::Number(2)), ..Choice::default() };
    /// assert!(Recording::open_of("missing.heaptide".as_ref(), &choice).is_err());
    /// ```
    pub fn open_of(path: &Path, choice: &Choice) -> Result<Recording, Error> {
        Recording::open_telling(path, choice, &mut |_, _| {})
    }

    /// Reads the same and calls `progress` with the number of addresses looked up and of all
    /// addresses.
    ///
    /// Errors: the same as those of [`Recording::open_of`].
    pub fn open_telling(
        path: &Path,
        choice: &Choice,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Recording, Error> {
        Recording::put_together(Parts::read(path, choice)?, path, &Blazesym, progress)
    }

    /// Reads a whole recording with another engine for names.
    pub fn open_with(
        path: &Path,
        engine: &dyn Engine,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Recording, Error> {
        let parts = Parts::read(path, &Choice::default())?;
        Recording::put_together(parts, path, engine, progress)
    }

    fn put_together(
        mut parts: Parts,
        path: &Path,
        engine: &dyn Engine,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Recording, Error> {
        let sources = &Sources::default();
        let changed = parts.look_up(&Lookup { engine, sources, again: false }, progress);
        if !parts.sealed {
            parts.look_up_jit(sources);
        }
        let endings = parts.endings(&changed);
        let ran_after_sealing = parts.ran_after_sealing();
        let processes = parts
            .profiles
            .into_iter()
            .zip(endings)
            .map(|((_, profile), ending)| process::process(profile, &parts.symbols, ending))
            .collect();
        let metadata = parts.metadata.unwrap_or_default();
        let of_members = metadata.members.iter().filter_map(|member| member.out_of_memory);
        Ok(Recording {
            path: path.to_owned(),
            sealed: parts.sealed,
            sealed_realtime_ns: metadata.sealed_realtime_ns,
            ran_after_sealing,
            out_of_memory: of_members.chain(metadata.out_of_memory).max(),
            unrecorded: metadata.unrecorded,
            removed: parts.removed,
            processes,
            damaged: parts.damaged,
            subject: None,
        })
    }
}

impl Process {
    /// Reads a profile from memory, without names and without access to files or running processes.
    /// `path` is for messages.
    ///
    /// Errors: the bytes are not a profile, have a later version, or contradict the format.
    ///
    /// ```
    /// use heaptide_analysis::model::{End, Process};
    /// let mut bytes = vec![0; 4096];
    /// bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// (bytes[8], bytes[12], bytes[65]) = (1, 2, 16); // version 1, mode stacks, ends at 4096
    /// let process = Process::from_bytes(&bytes, "12-0.profile".as_ref()).unwrap();
    /// assert_eq!((process.lifetime.end, process.tables.sites.len()), (End::Unknown, 0));
    /// ```
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Process, Error> {
        let profile = reader::parse(bytes, path)?;
        let end = ending::noted(&profile.header).unwrap_or(End::Unknown);
        let ending = Ending {
            file: path.to_owned(),
            run: None,
            end,
            is_requested: false,
            became_unrecorded: false,
            in_part: None,
            lasted: ending::lasted(&profile, end, &Outside::default()),
            process_number: 0,
            execs: 0,
            part: None,
            notes: profile.notes.clone(),
        };
        Ok(process::process(profile, &Symbols::default(), ending))
    }
}
