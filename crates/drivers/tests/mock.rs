//! `mock_driver`.

use std::time::Duration;

use herdsman_drivers::{Driver, DriverError, MockDriver, RecoverError};
use serde_json::json;

use crate::support::{end, eventually, node};

#[tokio::test]
async fn it_does_as_it_is_told() {
    let n = node().await;
    let d = MockDriver::new();
    let config = json!({"run_for": "10ms", "exit_code": 4, "exit_signal": 2, "exit_err_msg": "boom"});
    let (handle, _) = d.start(n.spec("a", config)).await.unwrap();
    let exit = end(&d, &handle).await;
    assert_eq!((exit.exit_code, exit.signal, exit.err.as_deref()), (4, 2, Some("boom")));

    let config = json!({"start_error": "no luck", "start_error_recoverable": true});
    let error = d.start(n.spec("b", config)).await.unwrap_err();
    assert_eq!((error.recoverable, error.message.as_str()), (true, "no luck"));

    let config = json!({"run_for": "1h", "stdout_string": "x\n", "stdout_repeat": 2, "stdout_repeat_duration": "1ms",
        "signal_error": "deaf", "driver_ip": "192.0.2.1", "driver_port_map": "http:80", "exec_command": {"exit_code": 9}});
    let (handle, network) = d.start(n.spec("c", config)).await.unwrap();
    assert_eq!(network.unwrap().port_map["http"], 80);
    assert_eq!(d.signal(&handle, "SIGHUP").await, Err(DriverError::Failed("deaf".into())));
    eventually("output", || n.log("c.stdout.0") == "x\nx\nx\n").await;
    d.stop(&handle, Duration::from_secs(30), "").await.unwrap();
    assert!(end(&d, &handle).await.success());
    d.destroy(&handle, false).await.unwrap();
    assert!(matches!(d.recover(&handle).await, Err(RecoverError::Lost(_))));

    let (handle, _) = d.start(n.spec("d", json!({"run_for": "1h", "kill_after": "1h"}))).await.unwrap();
    d.stop(&handle, Duration::from_millis(10), "").await.unwrap();
    assert_eq!(end(&d, &handle).await.signal, 9);
    assert!(d.check_config(&json!({"run_four": "1s"})).is_err());
    assert!(d.check_config(&json!({"run_for": "1 year"})).is_err());
}
