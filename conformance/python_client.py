"""Drives an agent with the python-nomad client the way people use it: deploy, look, update, stop, clean up.

The agent is the program called `nomad` first on PATH; it runs in development mode on ports of its own and is ended when
the script ends. Every step prints its name; the first that fails ends the script with exit status 1.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import nomad

# How long anything that happens by itself may take, seconds.
PATIENCE = 60


def free_ports(count):
    """Ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextlib.contextmanager
def agent():
    """A running development agent; gives the HTTP port."""
    folder = tempfile.mkdtemp(prefix="python-client-")
    http, rpc, serf = free_ports(3)
    config = os.path.join(folder, "agent.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"ports": {"http": http, "rpc": rpc, "serf": serf}, "log_level": "WARN"}, file)
    log = open(os.path.join(folder, "agent.log"), "w", encoding="utf-8")
    process = subprocess.Popen(["nomad", "agent", "-dev", "-config", config], stdout=log, stderr=log)
    try:
        yield http
    except BaseException:
        log.flush()
        with open(log.name, encoding="utf-8") as text:
            sys.stderr.write(text.read()[-4000:])
        raise
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def eventually(what, holds):
    """Waits until `holds()` gives something true, and gives that."""
    end = time.monotonic() + PATIENCE
    last = None
    while time.monotonic() < end:
        try:
            last = holds()
            if last:
                return last
        except (nomad.api.exceptions.BaseNomadException, OSError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE} s; last seen: {last!r}")


def check(condition, what):
    """Fails with a text that says what was expected."""
    if not condition:
        raise AssertionError(what)


STEPS = []


def step(function):
    """Marks a function as one step of the script."""
    STEPS.append(function)
    return function


SERVICE = """
job "python-web" {
  datacenters = ["*"]
  meta { owner = "team-a" }
  group "front" {
    count = 2
    restart {
      attempts = 1
      interval = "10s"
      delay    = "1s"
      mode     = "fail"
    }
    update {
      min_healthy_time  = "100ms"
      healthy_deadline  = "20s"
      progress_deadline = "30s"
    }
    task "server" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo ready; trap 'echo hup' HUP; while :; do sleep 0.1; done"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
"""

BATCH = {
    "Job": {
        "ID": "python-batch",
        "Name": "python-batch",
        "Type": "batch",
        "Datacenters": ["dc1"],
        "ParameterizedJob": {"Payload": "optional", "MetaRequired": ["who"], "MetaOptional": []},
        "TaskGroups": [
            {
                "Name": "work",
                "Count": 1,
                "Tasks": [
                    {
                        "Name": "greet",
                        "Driver": "raw_exec",
                        "Config": {"command": "/bin/sh", "args": ["-c", "echo hello $NOMAD_META_who"]},
                        "Resources": {"CPU": 20, "MemoryMB": 16},
                    }
                ],
            }
        ],
    }
}


@step
def the_agent_answers(client):
    eventually("a leader", lambda: client.status.leader.get_leader())
    check(client.agent.get_agent()["member"]["Status"] == "alive", "the agent's member is alive")
    check(len(client.agent.get_members()["Members"]) == 1, "one member")
    check(len(client.status.peers.get_peers()) == 1, "one peer")
    check(client.regions.get_regions() == ["global"], "one region")
    node = eventually("a ready node", lambda: [n for n in client.nodes.get_nodes() if n["Status"] == "ready"])[0]
    check(client.node.get_node(node["ID"])["Name"] == node["Name"], "the node can be read")
    check(node["ID"] in client.nodes, "the node is in the list")
    check("Gauges" in client.metrics.get_metrics(), "metrics have gauges")


@step
def a_job_file_is_parsed_validated_planned_and_run(client):
    job = client.jobs.parse(SERVICE, canonicalize=True)
    check(job["ID"] == "python-web", "the id is parsed")
    check(client.validate.validate_job({"Job": job}).ok, "the job is valid")
    plan = client.job.plan_job("python-web", {"Job": job}, diff=True)
    check(plan["Diff"]["Type"] == "Added", "the plan says that the job is new")
    answer = client.job.register_job("python-web", {"Job": job})
    check(len(answer["EvalID"]) == 36, "registering makes an evaluation")
    eventually("a complete evaluation", lambda: client.evaluation.get_evaluation(answer["EvalID"])["Status"] == "complete")
    check(answer["EvalID"] in client.evaluations, "the evaluation is in the list")
    eventually("two running allocations", lambda: len(running(client)) == 2)
    check(client.job.get_summary("python-web")["Summary"]["front"]["Running"] == 2, "the summary counts them")
    check("python-web" in client.jobs, "the job is in the list")
    check(client.jobs["python-web"]["Status"] == "running", "the job runs")


def running(client, job="python-web"):
    return [a for a in client.job.get_allocations(job) if a["ClientStatus"] == "running"]


@step
def the_deployment_succeeds(client):
    deployment = eventually("a successful deployment", lambda: (d := client.job.get_deployment("python-web")) and d["Status"] == "successful" and d)
    check(deployment["ID"] in client.deployments, "the deployment is in the list")
    check(client.deployment.get_deployment(deployment["ID"])["JobID"] == "python-web", "the deployment can be read")
    check(len(client.deployment.get_deployment_allocations(deployment["ID"])) == 2, "it has two allocations")


@step
def files_logs_and_statistics_are_read(client):
    alloc = running(client)[0]["ID"]
    check(alloc in {a["ID"] for a in client.allocations.get_allocations()}, "the allocation is in the list")
    names = {f["Name"] for f in client.client.ls.list_files(alloc)}
    check({"alloc", "server"} <= names, f"the allocation's folders are listed, seen {names}")
    eventually("a log", lambda: "ready" in client.client.cat.read_file(alloc, "alloc/logs/server.stdout.0"))
    check(client.client.stat.stat_file(alloc, "alloc")["IsDir"], "a folder is a folder")
    check(client.client.read_at.read_file_offset(alloc, 0, 5, "alloc/logs/server.stdout.0") == "ready", "part of a file is read")
    logs = client.client.stream_logs.stream(alloc, "server", "stdout", False, plain=True)
    check("ready" in logs, "logs are streamed")
    check("ResourceUsage" in client.client.allocation.read_allocation_stats(alloc), "the allocation has statistics")
    check("Memory" in client.client.stats.read_stats(), "the node has statistics")


@step
def an_allocation_is_signalled_and_restarted(client):
    alloc = running(client)[0]["ID"]
    client.client.allocation.signal_allocation(alloc, "SIGHUP", "server")
    eventually("the signal's trace", lambda: "hup" in client.client.cat.read_file(alloc, "alloc/logs/server.stdout.0"))
    client.client.allocation.restart_allocation(alloc)
    eventually("a restart", lambda: client.allocation.get_allocation(alloc)["TaskStates"]["server"]["Restarts"] >= 1)
    client.allocation.stop_allocation(alloc)
    eventually("a replacement", lambda: len(running(client)) == 2 and alloc not in {a["ID"] for a in running(client)})


@step
def a_new_version_is_rolled_out_and_reverted(client):
    job = client.job.get_job("python-web")
    job["TaskGroups"][0]["Tasks"][0]["Env"] = {"COLOR": "blue"}
    client.job.register_job("python-web", {"Job": job})
    eventually("version 1", lambda: client.job.get_job("python-web")["Version"] == 1)
    eventually("its deployment", lambda: (d := client.job.get_deployment("python-web"))["JobVersion"] == 1 and d["Status"] == "successful")
    check(len(client.job.get_versions("python-web")["Versions"]) == 2, "two versions are kept")
    client.job.revert_job("python-web", 0)
    eventually("version 2", lambda: client.job.get_job("python-web")["Version"] == 2)
    eventually("its deployment", lambda: (d := client.job.get_deployment("python-web"))["JobVersion"] == 2 and d["Status"] == "successful")


@step
def a_parameterized_job_is_dispatched(client):
    client.jobs.register_job(BATCH)
    child = client.job.dispatch_job("python-batch", meta={"who": "world"})["DispatchedJobID"]
    alloc = eventually("a complete child", lambda: [a for a in client.job.get_allocations(child) if a["ClientStatus"] == "complete"])[0]
    check(client.client.cat.read_file(alloc["ID"], "alloc/logs/greet.stdout.0") == "hello world\n", "the child saw its meta")
    try:
        client.job.dispatch_job("python-batch", meta={})
    except nomad.api.exceptions.BaseNomadException as error:
        check("who" in str(error.nomad_resp.text), "the refusal names the missing key")
    else:
        raise AssertionError("a dispatch without its required meta is refused")


@step
def the_cluster_is_looked_after(client):
    node = client.nodes.get_nodes()[0]["ID"]
    check(client.node.eligible_node(node, ineligible=True)["NodeModifyIndex"] > 0, "the node is made ineligible")
    check(client.node.get_node(node)["SchedulingEligibility"] == "ineligible", "it says so")
    client.node.eligible_node(node, eligible=True)
    check(client.node.evaluate_node(node) is not None, "a node can be evaluated")
    check(client.search.search("python-", "jobs")["Matches"]["jobs"], "jobs are found by prefix")
    check([n["Name"] for n in client.namespaces.get_namespaces()] == ["default"], "one namespace")
    try:
        client.job.get_job("no-such-job")
    except nomad.api.exceptions.URLNotFoundNomadException:
        pass
    else:
        raise AssertionError("a job that does not exist is not found")


@step
def everything_is_stopped_and_collected(client):
    for job in ("python-web", "python-batch"):
        client.job.deregister_job(job, purge=False)
    eventually("no running allocation", lambda: not running(client))
    check(client.job.get_job("python-web")["Stop"], "the job is stopped")
    client.job.deregister_job("python-web", purge=True)
    eventually("a purged job", lambda: "python-web" not in client.jobs)
    client.system.initiate_garbage_collection()
    client.system.reconcile_summaries()


def main():
    with agent() as port:
        client = nomad.Nomad(host="127.0.0.1", port=port, timeout=20)
        eventually("the agent", lambda: client.agent.get_agent())
        for one in STEPS:
            print(f"  {one.__name__.replace('_', ' ')}", flush=True)
            one(client)
    print(f"{len(STEPS)} passed, 0 failed")


if __name__ == "__main__":
    main()
