//! The files that queries of a cluster can read: those of datasets, and those below the directories
//! of `--allow-files`. All files that the engine opens for a plan go through this store, also for
//! plans of other clients.
//!
//! The check is made on the open file, so that symbolic links and `..` do not evade it. Nothing is
//! written.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path as ObjectPath;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use heaptide_query::tables::Source;
use tonic::codegen::Bytes;

use crate::dataset_file;
use crate::explain::{REFUSED_FILE, REFUSED_FILE_END};
use crate::layout::SUFFIX;

/// The name of the store in messages.
const STORE: &str = "heaptide";

/// The local files that queries can read.
#[derive(Debug)]
pub struct Files {
    local: LocalFileSystem,
    /// Directories whose files statements can name, without symbolic links.
    allowed: Vec<PathBuf>,
}

impl Files {
    /// Allows datasets, and files below these directories.
    ///
    /// Errors: a directory does not exist.
    pub fn new(directories: &[PathBuf]) -> Result<Files, heaptide_command::error::Error> {
        let resolved = |directory: &PathBuf| {
            let resolved = fs::canonicalize(directory);
            resolved.map_err(|error| {
                heaptide_command::error::Error::file(directory, "allow its files", error)
            })
        };
        let allowed = directories.iter().map(resolved).collect::<Result<_, _>>()?;
        Ok(Files { local: LocalFileSystem::new(), allowed })
    }

    /// Returns whether statements can name any file.
    pub fn has_allowed(&self) -> bool {
        !self.allowed.is_empty()
    }

    /// Returns whether a query can read a file; the path has no symbolic links.
    fn is_readable(&self, real: &Path) -> bool {
        self.is_allowed(real) || is_of_dataset(real)
    }

    fn is_allowed(&self, real: &Path) -> bool {
        self.allowed.iter().any(|directory| real.starts_with(directory))
    }

    /// Checks a directory that the engine lists, for statements that name it.
    fn check_listed(&self, prefix: Option<&ObjectPath>) -> Result<()> {
        let path = PathBuf::from(format!("/{}", prefix.map_or("", |prefix| prefix.as_ref())));
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if self.is_allowed(&real) { Ok(()) } else { Err(refused(&path)) }
    }
}

/// Returns the environment of queries that read these files.
///
/// Errors: those of the engine.
pub fn environment(files: Arc<Files>, temporary: &str) -> Result<Arc<RuntimeEnv>, DataFusionError> {
    let environment = RuntimeEnvBuilder::new().with_temp_file_path(temporary).build()?;
    let url = datafusion::execution::object_store::ObjectStoreUrl::local_filesystem();
    environment.register_object_store(url.as_ref(), files);
    Ok(Arc::new(environment))
}

/// Returns whether a file belongs to a table of a dataset; the path has no symbolic links.
fn is_of_dataset(real: &Path) -> bool {
    let is_data = real.to_str().is_some_and(|path| path.ends_with(SUFFIX));
    is_data
        && real.ancestors().skip(1).any(|table| {
            let name = table.file_name().and_then(|name| name.to_str());
            let is_table = name.is_some_and(|name| Source::all().iter().any(|of| of.name == name));
            is_table && table.parent().is_some_and(dataset_file::is_one)
        })
}

/// Returns the error for a file that queries cannot read.
fn refused(path: &Path) -> Error {
    let what = format!("{REFUSED_FILE}{}{REFUSED_FILE_END}", path.display());
    Error::Generic { store: STORE, source: what.into() }
}

/// Returns the error for a change of a file.
fn read_only() -> Error {
    Error::Generic { store: STORE, source: "clusters do not write files".into() }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("files of datasets")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Files {
    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> Result<GetResult> {
        let result = self.local.get_opts(location, options).await?;
        let GetResultPayload::File(file, _) = &result.payload else {
            return Err(refused(Path::new(location.as_ref())));
        };
        // The name of the open file, even if the path leads to another one by now.
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        match real {
            Ok(real) if self.is_readable(&real) => Ok(result),
            _ => Err(refused(&PathBuf::from(format!("/{location}")))),
        }
    }

    async fn get_ranges(&self, location: &ObjectPath, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let failed = |error: io::Error| Error::Generic { store: STORE, source: error.into() };
        let result = self.get_opts(location, GetOptions::default()).await?;
        let GetResultPayload::File(file, _) = result.payload else {
            return Err(refused(Path::new(location.as_ref())));
        };
        let (ranges, size) = (ranges.to_vec(), result.meta.size);
        let read = move |range: Range<u64>| {
            let end = range.end.min(size); // memory is not reserved for more than the file has
            let length = usize::try_from(end.saturating_sub(range.start)).unwrap_or(0);
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok(Bytes::from(bytes))
        };
        let all = move || ranges.into_iter().map(read).collect::<io::Result<Vec<_>>>();
        let done = tokio::task::spawn_blocking(all).await;
        done.map_err(|error| Error::JoinError { source: error })?.map_err(failed)
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check_listed(prefix) {
            Ok(()) => self.local.list(prefix),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> Result<ListResult> {
        self.check_listed(prefix)?;
        self.local.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, _: &ObjectPath, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only())
    }

    async fn put_multipart_opts(
        &self,
        _: &ObjectPath,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only())
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<ObjectPath>>,
    ) -> BoxStream<'static, Result<ObjectPath>> {
        locations.and_then(|_| async { Err(read_only()) }).boxed()
    }

    async fn copy_opts(&self, _: &ObjectPath, _: &ObjectPath, _: CopyOptions) -> Result<()> {
        Err(read_only())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use datafusion::object_store::ObjectStoreExt;
    use heaptide_fixtures::Scratch;

    use super::*;

    fn location(path: &Path) -> ObjectPath {
        ObjectPath::from_absolute_path(path).expect("a path")
    }

    #[tokio::test]
    async fn only_files_of_datasets_and_allowed_directories_are_read() {
        let place = Scratch::new("files");
        let [heap, secret, open] = ["heap", "secret", "open"].map(|name| place.join(name));
        for directory in [&heap.join("sites/run=a"), &secret.join("sites"), &open] {
            fs::create_dir_all(directory).expect("a directory");
        }
        fs::write(heap.join("heaptide-dataset"), "schema 1\n").expect("a file");
        let good = heap.join("sites/run=a/image-0.parquet");
        let hidden = secret.join("sites/a.parquet");
        let (note, csv) = (heap.join("sites/note.csv"), open.join("a.csv"));
        for path in [&good, &hidden, &note, &csv] {
            fs::write(path, "0123456789").expect("a file");
        }
        // Links in a dataset or an allowed directory do not lead out of it.
        let links = [heap.join("sites/link.parquet"), open.join("link.csv")];
        links.iter().for_each(|link| symlink(&hidden, link).expect("a link"));
        let datasets = Files::new(&[]).expect("a store");
        let with_open = Files::new(std::slice::from_ref(&open)).expect("a store");
        let reads = async |files: &Files, path: &Path| {
            let location = location(path);
            let whole = files.get_opts(&location, GetOptions::default()).await.is_ok();
            let head = files.head(&location).await.is_ok();
            let ranges = files.get_ranges(&location, &[2..4, 8..99]).await;
            assert_eq!((whole, head), (ranges.is_ok(), whole), "{}", path.display());
            if let Ok(ranges) = ranges {
                assert_eq!(ranges, [&b"23"[..], b"89"]);
            }
            whole
        };
        for (path, by_default, with) in [
            (&good, true, true),
            (&csv, false, true),
            (&hidden, false, false),
            (&note, false, false),
            (&links[0], false, false),
            (&links[1], false, false),
        ] {
            assert_eq!(reads(&datasets, path).await, by_default, "{}", path.display());
            assert_eq!(reads(&with_open, path).await, with, "{}", path.display());
        }
        let lists = async |files: &Files, path: &Path| {
            files.list(Some(&location(path))).try_collect::<Vec<_>>().await.is_ok()
        };
        assert!(lists(&with_open, &open).await);
        assert!(!lists(&datasets, &open).await && !lists(&with_open, &secret).await);
        let written = with_open.put(&location(&open.join("new")), "text".into()).await;
        assert!(written.is_err() && !open.join("new").exists());
        assert!(with_open.delete(&location(&csv)).await.is_err() && csv.exists());
    }
}
