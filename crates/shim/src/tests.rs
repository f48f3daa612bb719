//! Golden bytes and damaged input.

use crate::codec::Message;
use crate::messages::{Deadline, ExitRecord, Isolation, LogPlan, MountStep, PidRecord, StartRequest};
use crate::wire::{self, WireError};

#[test]
fn exit_record_bytes_are_stable() {
    let exit = ExitRecord { pid: 7, code: -1, signal: 9, oom: true, ..ExitRecord::default() };
    let expected: &[u8] = &[
        1, 8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, // pid
        2, 8, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, // code
        3, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, // signal
        4, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, // oom
        8, 0, 0, 0, 0, // no reason
    ];
    assert_eq!(exit.encode(), expected);
    assert_eq!(ExitRecord::decode(expected), Ok(exit));
}

#[test]
fn pid_record_file_is_stable() {
    let record = PidRecord { pid: 3, start_ticks: 5, boot_id: b"b".to_vec(), ..PidRecord::default() };
    let file = wire::record(&record.encode());
    assert_eq!(&file[..10], b"HSR1\x01\x00\x20\x00\x00\x00");
    let body = wire::open_record(&file).unwrap();
    assert_eq!(PidRecord::decode(body), Ok(record));
}

#[test]
fn start_request_survives_the_way() {
    let req = StartRequest {
        run_file: b"/r".to_vec(),
        argv: vec![b"a".to_vec(), Vec::new(), b"\xff".to_vec()],
        env: vec![b"A=".to_vec()],
        groups: vec![0, 7],
        log: Some(LogPlan { max_files: 3, ..LogPlan::default() }),
        isolation: Some(Isolation {
            steps: vec![
                MountStep::Mask { target: b"/x".to_vec() },
                MountStep::Node { target: b"/dev/null".to_vec(), mode: 0o666, major: 1, minor: 3 },
            ],
            ..Isolation::default()
        }),
        oom_score_adj: -5,
        cap_bounding: Some(0),
        deadline: Some(Deadline { at_ns: 1, signal: 15, grace_ns: 2 }),
        ..StartRequest::default()
    };
    assert_eq!(StartRequest::decode(&req.encode()), Ok(req));
}

#[test]
fn damage_is_noticed() {
    let file = wire::record(b"body");
    for cut in 0..file.len() {
        assert!(wire::open_record(&file[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 0x10;
        assert!(wire::open_record(&bad).is_err(), "bit flipped at {at}");
    }
    let longer = [&file[..], b"what an older record left"].concat();
    assert_eq!(wire::open_record(&longer), Ok(&b"body"[..]));
}

#[test]
fn frames_are_limited_and_versioned() {
    let frame = wire::frame(3, b"xy");
    assert_eq!(wire::take_frame(&frame), Ok(Some((3, &b"xy"[..], frame.len()))));
    assert_eq!(wire::take_frame(&frame[..6]), Ok(None));
    assert_eq!(wire::take_frame(&u32::MAX.to_le_bytes()), Err(WireError::TooLong));
    let mut newer = frame;
    newer[4] = 9;
    assert_eq!(wire::take_frame(&newer), Err(WireError::Version(9)));
}
