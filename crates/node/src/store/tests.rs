use super::*;
use crate::alloc::StoredLife;
use herdsman_lifecycle::{Key, Stage, TaskRecord};
use herdsman_model::{Allocation, TaskEvent, TaskFact};
use herdsman_world::{DiskFault, SimDisk};

const DIR: &str = "/state";

fn world() -> (World, Arc<SimDisk>) {
    let disk = Arc::new(SimDisk::new(11));
    let world = World { disk: disk.clone(), ..World::simulated(11) };
    world.disk.create_dir_all(Path::new(DIR)).unwrap();
    (world, disk)
}

async fn open(world: &World) -> (Store, Loaded) {
    Store::open(world, Path::new(DIR), Box::new(())).await.unwrap()
}

fn record() -> TaskRecord {
    let mut record =
        TaskRecord { key: Key { run: 0, attempt: 2 }, stage: Stage::Delay { until: 9 }, ..TaskRecord::default() };
    record.state.events.push(TaskEvent { time: 3, fact: TaskFact::Started });
    record
}

fn ops(n: u8) -> Vec<Op> {
    let id = AllocId([n; 16]);
    let alloc = Allocation { id, job_id: "job".into(), ..Allocation::default() };
    vec![
        Op::PutAlloc(id, Stored::json(&alloc)),
        Op::PutLife(id, Stored::json(&StoredLife::default())),
        Op::PutTask(id, "web".into(), Stored::json(&record())),
        Op::PutHandle(id, "web".into(), Stored::opaque(b"handle")),
    ]
}

#[tokio::test]
async fn what_was_written_is_there_after_a_crash() {
    let (world, disk) = world();
    let (store, loaded) = open(&world).await;
    assert!(loaded.allocs.is_empty());
    store.write(ops(1)).await.unwrap();
    store.write(ops(2)).await.unwrap();
    store.write(vec![Op::DropAlloc(AllocId([2; 16]))]).await.unwrap();
    disk.crash();
    let (_, loaded) = open(&world).await;
    assert_eq!(loaded.allocs.len(), 1);
    let one = &loaded.allocs[&AllocId([1; 16])];
    assert_eq!(one.tasks["web"], record());
    assert_eq!(one.handles["web"], b"handle");
    assert_eq!((&one.life, &one.damage), (&Some(StoredLife::default()), &None));
}

#[tokio::test]
async fn a_closed_store_has_let_go_of_its_directory_and_takes_no_more() {
    let (world, _disk) = world();
    let path = Path::new(DIR).join("lock");
    let lock = || world.disk.lock(&path);
    let (store, _) = Store::open(&world, Path::new(DIR), lock().unwrap()).await.unwrap();
    store.write(ops(1)).await.unwrap();
    assert!(lock().is_err());
    store.close().await;
    assert!(lock().is_ok());
    assert_eq!(store.write(ops(2)).await, Err("the node store is closed".to_string()));
    store.close().await;
    assert_eq!(open(&world).await.1.allocs.len(), 1);
}

#[tokio::test]
async fn a_file_of_the_wrong_length_is_set_aside() {
    for change in [4096_i64, -4096, 7] {
        let (world, _disk) = world();
        let (store, _) = open(&world).await;
        store.write(ops(1)).await.unwrap();
        store.close().await;
        let file = world.disk.open(&Path::new(DIR).join(FILE), herdsman_world::OpenMode::CreateOrOpen).unwrap();
        file.set_len(file.len().unwrap().checked_add_signed(change).unwrap()).unwrap();
        let (store, _) = open(&world).await;
        store.write(ops(3)).await.unwrap();
        store.close().await;
        assert!(open(&world).await.1.allocs.contains_key(&AllocId([3; 16])), "{change}");
    }
}

/// Power fails at every point of a few writes: what was acknowledged is there, and the store opens.
#[tokio::test]
async fn nothing_acknowledged_is_lost_wherever_power_fails() {
    let mut ended = false;
    for after in 0.. {
        let (world, disk) = world();
        let (store, _) = open(&world).await;
        disk.inject(DiskFault::PowerAfter(after));
        let mut acknowledged = 0;
        for n in 1..4 {
            if store.write(ops(n)).await.is_err() {
                break;
            }
            acknowledged = n;
        }
        ended |= acknowledged == 3;
        disk.crash();
        let (_, loaded) = open(&world).await;
        for n in 1..=acknowledged {
            assert_eq!(loaded.allocs[&AllocId([n; 16])].tasks["web"], record(), "power failed after {after}");
        }
        if ended {
            break;
        }
    }
}

/// A full disk refuses writes and is said; with room again everything goes on.
#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let (world, disk) = world();
    let (store, _) = open(&world).await;
    store.write(ops(1)).await.unwrap();
    disk.inject(DiskFault::Capacity(1));
    let mut refused = false;
    for n in 2..200 {
        let big = Op::PutMeta("filler", vec![n; 1 << 20]);
        if store.write([ops(n), vec![big]].concat()).await.is_err() {
            refused = true;
            break;
        }
    }
    assert!(refused && store.is_failing());
    disk.heal();
    store.write(ops(250)).await.unwrap();
    assert!(!store.is_failing());
    disk.crash();
    let (_, loaded) = open(&world).await;
    assert!(loaded.allocs.contains_key(&AllocId([1; 16])) && loaded.allocs.contains_key(&AllocId([250; 16])));
}

/// A damaged task record costs its allocation, no other; the reader of a damaged allocation record drops it.
#[tokio::test]
async fn nomad_19972_damage_costs_one_allocation() {
    let (world, _) = world();
    let (store, _) = open(&world).await;
    store.write(ops(1)).await.unwrap();
    store.write(ops(2)).await.unwrap();
    store.write(ops(3)).await.unwrap();
    store.write(vec![Op::PutTask(AllocId([1; 16]), "web".into(), vec![0xff, 1, 2])]).await.unwrap();
    store.write(vec![Op::PutAlloc(AllocId([2; 16]), b"half".to_vec())]).await.unwrap();
    let newer = Stored { format: FORMAT + 1, json: b"{}".to_vec(), opaque: vec![] }.encode_to_vec();
    store.write(vec![Op::PutLife(AllocId([3; 16]), newer)]).await.unwrap();
    drop(store);
    let (_, loaded) = open(&world).await;
    assert!(loaded.allocs[&AllocId([1; 16])].damage.as_deref().is_some_and(|d| d.contains("web")));
    assert!(!loaded.allocs.contains_key(&AllocId([2; 16])), "the servers send it again");
    assert!(loaded.allocs[&AllocId([3; 16])].damage.as_deref().is_some_and(|d| d.contains("format 2")));
}

/// A file that is no store is set aside with a new one begun, so that the agent starts.
#[tokio::test]
async fn nomad_16638_a_store_that_cannot_be_read_is_set_aside() {
    let (world, _) = world();
    world.disk.replace(&Path::new(DIR).join(FILE), &[7; 9000]).unwrap();
    let (store, loaded) = open(&world).await;
    assert!(loaded.allocs.is_empty());
    store.write(ops(1)).await.unwrap();
    let names: Vec<_> = world.disk.list(Path::new(DIR)).unwrap().into_iter().map(|e| e.name).collect();
    assert!(names.iter().any(|name| name.starts_with("node.redb.damaged-")), "{names:?}");
}

/// Stored bytes never change: these were written by the first version.
#[test]
fn stored_bytes_are_as_the_first_version_wrote_them() {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let text = |bytes: &[u8]| String::from_utf8(Stored::decode(bytes).unwrap().json).unwrap();
    assert_eq!(hex(&Stored::opaque(b"handle")), "08011a0668616e646c65");
    assert_eq!(hex(&Stored::json(&vec![1])), "080112035b315d");
    assert_eq!(
        text(&Stored::json(&record())),
        r#"{"key":{"run":0,"attempt":2},"stage":"delay","until":9,"ending":null,"tracker":{"start":0,"count":0},"#
            .to_string()
            + r#""has_started":false,"set_up":false,"state":{"state":"pending","failed":false,"restarts":0,"#
            + r#""last_restart":null,"started_at":null,"finished_at":null,"events":[{"time":3,"fact":"Started"}]}}"#
    );
    assert_eq!(
        text(&Stored::json(&StoredLife::default())),
        r#"{"run":0,"setup":{"setup":"pending"},"stop":null,"kill":null,"services":{"services":"on"},"#.to_string()
            + r#""no_shutdown_delay":false,"restarting":null,"rebooted":false,"outcome":null,"status":"pending","#
            + r#""description":"","postrun_done":false,"healthy":null,"healthy_at":null}"#
    );
}
