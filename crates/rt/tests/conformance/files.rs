//! Files and devices as they are opened: what is wrong is said, sizes and ends hold.

use super::*;

#[test]
#[cfg_attr(miri, ignore = "files of the system")]
fn a_read_only_drive_takes_no_write() {
    let file = file();
    let drive = Device::open(file.path(), OpenOptions::default()).unwrap();
    run(config(BackendChoice::Auto, 1), async |core| {
        let refused = core.write(&drive, 0, Buf::zeros(512), Durability::Cached).await;
        assert_eq!(refused.unwrap_err().kind(), IoErrorKind::ReadOnly);
        assert_eq!(core.flush(&drive).await, Ok(()));
    })
    .unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "files of the system")]
fn a_truncated_file_ends_early_and_is_no_medium_error() {
    for backend in [BackendChoice::Uring, BackendChoice::Syscall] {
        let file = file();
        let drive = open(&file, Direct::Never);
        file.as_file().set_len(5000).unwrap();
        let ran = run(config(backend, 1), async |core| {
            assert_eq!(core.read(&drive, 0, BufMut::alloc(4096)).await.0, Ok(()));
            assert_eq!(core.read(&drive, 4096, BufMut::alloc(4096)).await.0, Err(IoError::END_OF_DEVICE));
            assert_eq!(core.read(&drive, 8192, BufMut::alloc(4096)).await.0, Err(IoError::END_OF_DEVICE));
        });
        assert!(matches!(ran, Ok(()) | Err(BackendError::UringForbidden { .. })));
    }
}

#[test]
#[cfg_attr(miri, ignore = "files of the system")]
fn opening_says_what_is_wrong() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let open = |path: &std::path::Path, lock| {
        Device::open(path, OpenOptions { write: true, lock, ..OpenOptions::default() })
    };
    let path = dir.path().join("member");
    assert_eq!(open(&path, Lock::None).unwrap_err(), OpenError::NotFound);
    assert_eq!(open(dir.path(), Lock::None).unwrap_err(), OpenError::IsDirectory);
    assert_eq!(open("/dev/null".as_ref(), Lock::None).unwrap_err(), OpenError::NotAFileOrBlockDevice);
    std::fs::write(&path, b"").unwrap();
    assert_eq!(open(&path, Lock::None).unwrap_err(), OpenError::Empty);
    std::fs::write(&path, [1; 5000]).unwrap();

    let first = open(&path, Lock::Exclusive).unwrap();
    assert_eq!(open(&path, Lock::Exclusive).unwrap_err(), OpenError::Locked);
    assert_eq!(open(&path, Lock::Shared).unwrap_err(), OpenError::Locked);
    let unlocked = open(&path, Lock::None).unwrap();
    assert_eq!((first.size_bytes(), first.writable(), first.is_block_device()), (5000, true, false));
    assert!(!first.same(&unlocked) && first.same(&first.clone()));
    drop(first);
    let shared = open(&path, Lock::Shared).unwrap();
    assert!(open(&path, Lock::Shared).is_ok());
    assert_eq!(open(&path, Lock::Exclusive).unwrap_err(), OpenError::Locked);
    drop(shared);
    open(&path, Lock::Exclusive).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "files of the system")]
fn blocking_reads_take_any_offset_also_without_the_page_cache() {
    let file = file();
    for drive in [open(&file, Direct::Auto), Device::mem(SIZE)] {
        let bytes = pattern(3, 8192);
        drive.write_blocking(4096, &bytes).unwrap();
        drive.sync_blocking().unwrap();
        let mut seen = [0; 1000];
        drive.read_blocking(4096 + 777, &mut seen).unwrap();
        assert_eq!(seen[..], bytes[777..1777]);
        assert_eq!(drive.read_blocking(SIZE - 10, &mut seen), Err(IoError::END_OF_DEVICE));
    }
}

#[test]
#[cfg_attr(miri, ignore = "files of the system")]
fn the_tail_of_a_file_of_odd_size_can_be_read() {
    // Without the page cache the last, partial block comes as a short read.
    let file = file();
    file.as_file().set_len(5000).unwrap();
    let drive = Device::open(file.path(), OpenOptions::default()).unwrap();
    let mut seen = [1; 900];
    drive.read_blocking(4100, &mut seen).unwrap();
    assert_eq!(seen, [0; 900]);
}
