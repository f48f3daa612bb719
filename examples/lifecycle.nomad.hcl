# Every kind of lifecycle task around one main task: a batch job that ends by itself.
job "lifecycle" {
  type = "batch"

  group "pipeline" {
    task "prepare" {
      driver = "raw_exec"
      lifecycle {
        hook = "prestart"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo preparing; echo 42 > ${NOMAD_ALLOC_DIR}/data/answer"]
      }
    }

    task "ship-logs" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "while :; do echo shipping; sleep 1; done"]
      }
    }

    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo the answer is $(cat ${NOMAD_ALLOC_DIR}/data/answer); sleep 2"]
      }
    }

    task "announce" {
      driver = "raw_exec"
      lifecycle {
        hook = "poststart"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo main has started"]
      }
    }

    task "clean-up" {
      driver = "raw_exec"
      lifecycle {
        hook = "poststop"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "rm ${NOMAD_ALLOC_DIR}/data/answer; echo cleaned up"]
      }
    }
  }
}
