//! SHA-256 of what came out, in the format of sha256sum(1).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wattle_control::Problem;

use super::zeros;
use crate::output::file_failed;

/// The file with the sums.
pub struct Checksums {
    path: PathBuf,
    file: BufWriter<File>,
}

/// The sum of one file, which is fed in order, holes left out.
pub struct Sum {
    sum: Sha256,
    at: u64,
}

impl Sum {
    pub fn new() -> Self {
        Self { sum: Sha256::new(), at: 0 }
    }

    pub fn data(&mut self, offset: u64, bytes: &[u8]) {
        self.hole_to(offset);
        self.sum.update(bytes);
        self.at = offset + bytes.len() as u64;
    }

    pub fn finish(mut self, size_bytes: u64) -> String {
        self.hole_to(size_bytes);
        self.sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn hole_to(&mut self, end: u64) {
        // Writing to a sum cannot fail.
        let _ = zeros(&mut Feed(&mut self.sum), end.saturating_sub(self.at));
        self.at = end;
    }
}

/// The sum of a file of the host.
pub fn sum_of_file(file: &File, size_bytes: u64) -> std::io::Result<String> {
    let (mut sum, mut at, mut bytes) = (Sum::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read_at(&mut bytes, at)? {
            0 => return Ok(sum.finish(size_bytes)),
            len => {
                sum.data(at, &bytes[..len]);
                at += len as u64;
            }
        }
    }
}

struct Feed<'a>(&'a mut Sha256);

impl Write for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Checksums {
    /// # Errors
    /// The file cannot be made, or is there already and is not to be replaced.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, Problem> {
        let mut options = File::options();
        options.write(true).create_new(!overwrite).create(overwrite).truncate(overwrite);
        let file = options.open(path).map_err(|error| file_failed(path, &error))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// # Errors
    /// The file cannot be written to.
    pub fn add(&mut self, path: &[u8], sum: &str) -> Result<(), Problem> {
        let written = self.file.write_all(&line(path, sum));
        written.map_err(|error| file_failed(&self.path, &error))
    }

    /// # Errors
    /// The file cannot be written to.
    pub fn finish(mut self) -> Result<(), Problem> {
        let sync = |file: &File| match file.sync_all() {
            // A pipe, or the null device.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        };
        self.file
            .flush()
            .and_then(|()| sync(self.file.get_ref()))
            .map_err(|error| file_failed(&self.path, &error))
    }
}

/// A name with characters that would end the line starts it with a backslash, and has them escaped.
fn line(path: &[u8], sum: &str) -> Vec<u8> {
    let mut line = Vec::new();
    let mut escaped = Vec::new();
    for byte in path {
        match byte {
            b'\\' => escaped.extend(b"\\\\"),
            b'\n' => escaped.extend(b"\\n"),
            b'\r' => escaped.extend(b"\\r"),
            byte => escaped.push(*byte),
        }
    }
    if escaped.len() != path.len() {
        line.push(b'\\');
    }
    line.extend(sum.as_bytes());
    line.extend(b"  ");
    line.extend(escaped);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        assert_eq!(line(b"a b", "00ff"), b"00ff  a b\n");
        assert_eq!(line(b"a\nb\\", "00ff"), b"\\00ff  a\\nb\\\\\n");
    }

    #[test]
    fn holes_are_zeros() {
        let mut sum = Sum::new();
        sum.data(70_000, b"x");
        let mut bytes = vec![0; 100_000];
        bytes[70_000] = b'x';
        let expected: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sum.finish(100_000), expected);
    }
}
