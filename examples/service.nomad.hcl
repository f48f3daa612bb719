# A service with a health check, a rolling update and a cleanup hook. Ctrl-C stops it; the cleanup still runs.
job "web" {
  group "front" {
    count = 2

    network {
      port "http" {}
    }

    update {
      min_healthy_time = "1s"
      healthy_deadline = "30s"
    }

    service {
      name     = "web"
      provider = "nomad"
      port     = "http"

      check {
        type     = "tcp"
        interval = "2s"
        timeout  = "1s"
      }
    }

    task "server" {
      driver = "raw_exec"
      config {
        command = "python3"
        args    = ["-m", "http.server", "${NOMAD_PORT_http}", "--bind", "${NOMAD_IP_http}"]
      }
      resources {
        cpu    = 50
        memory = 64
      }
    }

    task "say-goodbye" {
      driver = "raw_exec"
      lifecycle {
        hook = "poststop"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo stopped; sleep 1"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
