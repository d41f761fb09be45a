//! What a stack is for.

/// A load by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// The same as a line of fio's options.
    pub line: &'static str,
    /// What stands behind it.
    pub about: &'static str,
}

/// All of them. They are rules of thumb: a load that is known is given instead.
pub const NAMED: &[Named] = &[
    Named {
        name: "mail",
        line: "rw=randrw,bs=16k,iodepth=64,rwmixread=50",
        about: "many small files, many processes",
    },
    Named {
        name: "database",
        line: "rw=randrw,bs=8k,iodepth=32,rwmixread=70",
        about: "pages of 8 KiB, in place",
    },
    Named {
        name: "vm",
        line: "rw=randrw,bs=32k,iodepth=32,rwmixread=60",
        about: "images of virtual machines",
    },
    Named { name: "media", line: "rw=read,bs=1m,iodepth=8,rwmixread=100", about: "large files, mostly read" },
    Named {
        name: "backup",
        line: "rw=write,bs=1m,iodepth=8,rwmixread=0",
        about: "large files, mostly written",
    },
    Named { name: "general", line: "rw=randrw,bs=64k,iodepth=16,rwmixread=70", about: "a bit of everything" },
];

impl Named {
    /// The load of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Named> {
        NAMED.iter().find(|named| named.name == name)
    }
}

/// What matters of a load for everything that is not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name, if it has one.
    pub name: Option<&'static str>,
    /// Requests go anywhere.
    pub random: bool,
    /// The part of requests that is reads, 0 to 1.
    pub read_part: f64,
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests in flight.
    pub depth: u64,
}

impl Workload {
    /// Small requests anywhere.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.random && self.bytes <= 16 << 10
    }

    /// Many files at a time, so that many parts of a file system are written side by side.
    #[must_use]
    pub fn many_files(&self) -> bool {
        self.name == Some("mail")
    }

    /// It writes small pieces in place, so that a torn stripe goes unnoticed.
    #[must_use]
    pub fn in_place(&self) -> bool {
        matches!(self.name, Some("mail" | "database" | "vm"))
    }
}
