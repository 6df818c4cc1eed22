"""Fakes of OpenPBS 23.06, LSF 10.1 and Kubernetes 1.32, as far as a client sees them. The folder jobs/N holds job N: its script,
its attributes (job.json), and the result once it has ended (end.json). A supervisor process runs each job."""
import json, os, re, shlex, signal, subprocess, sys, time

HOME = os.environ["FAKE_BATCH"]
ME = os.path.basename(sys.argv[0])
PATH = re.compile(r"/[\w./-]+$")
WORD = r"[\w.@,:+=-]+"


def is_set(name):
    return os.path.exists(os.path.join(HOME, name))


def die(code, words):
    sys.stderr.write(words + "\n")
    sys.exit(code)


def folder(number):
    return os.path.join(HOME, "jobs", str(number))


def load(number, name):
    try:
        with open(os.path.join(folder(number), name)) as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def save(number, name, value):
    path = os.path.join(folder(number), name)
    with open(path + ".new", "w") as file:
        json.dump(value, file)
    os.rename(path + ".new", path)


def create(script, job):
    number = 1
    while True:
        try:
            os.mkdir(folder(number))
            break
        except FileExistsError:
            number += 1
    with open(os.path.join(folder(number), "script"), "w") as file:
        file.write(script)
    save(number, "job.json", job)
    if not job.get("never"):
        supervise(number, job)
    return number


def supervise(number, job):
    """Runs the job's tasks, detached from the submitting process."""
    if os.fork():
        return
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    children, ends = [], []
    for index in job["tasks"]:
        env = dict(os.environ, **job["env"])
        if index is not None:
            env[job["index"]] = str(index)
        argv = job.get("argv") or ["/bin/bash", os.path.join(folder(number), "script")]
        children.append(subprocess.Popen(argv, env=env, start_new_session=True))
    save(number, "running.json", [child.pid for child in children])
    late = time.time() + (job["seconds"] or 10**9)
    for child in children:
        try:
            status = child.wait(max(0, late - time.time()))
        except subprocess.TimeoutExpired:
            status = "late"
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        ends.append(status)
    save(number, "end.json", ends)
    os._exit(0)


def directives(script, mark, whole):
    """Yields the words of each directive. PBS stops at the first command; LSF reads the whole script."""
    for line in script.split("\n"):
        if line.startswith(mark + " "):
            yield shlex.split(line[len(mark) + 1:])
        elif not whole and line.strip() and not line.startswith("#"):
            return


def tasks(words):
    first, last = (int(number) for number in words.split("-"))
    return list(range(first, last + 1))


def seconds(*parts):
    return sum(int(part) * 60**power for power, part in enumerate(reversed(parts)))


# OpenPBS

PBS = {
    "-N": r"[A-Za-z][\w.+-]{0,229}", "-S": r"/[\w/]+", "-r": r"[yn]", "-o": r"/[\w./-]+", "-e": r"/[\w./-]+",
    "-j": r"oe|eo|n", "-q": WORD, "-A": WORD, "-P": WORD, "-M": WORD, "-m": r"[abe]+|n", "-J": r"\d+-\d+(%\d+)?",
}
CHUNK = re.compile(r"select=1:ncpus=(\d+)(:mem=\d+(kb|mb|gb))?$")
WALLTIME = re.compile(r"walltime=(\d{2,}):([0-5]\d):([0-5]\d)$")


def qsub():
    if is_set("away"):
        die(162, "Connection refused\nqsub: cannot connect to server vm (errno=15010)")
    script = open(sys.argv[1]).read() if len(sys.argv) > 1 else sys.stdin.read()
    job = {"env": {}, "tasks": [None], "seconds": None, "rerun": "True", "index": "PBS_ARRAY_INDEX"}
    for words in directives(script, "#PBS", False):
        flag, values = words[0], words[1:]
        if flag == "-V" and not values:
            continue
        if flag == "-l" and len(values) == 1:
            resource(job, values[0])
        elif flag not in PBS or len(values) != 1:
            die(2, f"qsub: illegal option {shlex.join(words)}\nusage: qsub [-a date_time] [-A account_string] ...")
        elif not re.fullmatch(PBS[flag], values[0]):
            die(1, f"qsub: illegal {flag} value")
        elif flag == "-q" and values[0] not in ("workq", "long"):
            die(170, "qsub: Unknown queue")
        elif flag == "-r":
            job["rerun"] = {"y": "True", "n": "False"}[values[0]]
        elif flag == "-J":
            job["tasks"] = tasks(values[0].split("%")[0])
    number = create(script, job)
    print(f"{number}[].vm" if job["tasks"] != [None] else f"{number}.vm")


def resource(job, value):
    chunk, wall = CHUNK.match(value), WALLTIME.match(value)
    if chunk:
        job["never"] = int(chunk[1]) > 64 and f"Can Never Run: Insufficient amount of resource: ncpus (R: {chunk[1]} A: 64 T: 64)"
    elif wall:
        job["seconds"] = seconds(*wall.groups())
    else:
        die(187, f"qsub: Unknown resource Resource_List.{value.split('=')[0]}")


def pbs_job(number):
    job, ends = load(number, "job.json"), load(number, "end.json")
    told = {"Job_Owner": "user@vm", "queue": "workq", "Rerunable": job["rerun"]}
    if ends is None:
        if job.get("never"):
            return dict(told, job_state="Q", comment=job["never"])
        return dict(told, job_state="R", substate=41, run_count=1)
    status = max(pbs_status(end) for end in ends) if "late" not in ends else -29
    substate = 91 if load(number, "deleted.json") else 92 if status == 0 else 93
    return dict(told, job_state="F", substate=substate, Exit_status=status)


def pbs_status(end):
    return 256 - end if end < 0 else end


def qstat():
    args = sys.argv[1:]
    if args == ["--version"]:
        print("pbs_version = 23.06.06")
        return
    history = args[:1] == ["-x"]
    if args[history:history + 3] != ["-f", "-F", "json"]:
        die(2, "usage: qstat [-f] ...")
    ids, said, code = args[history + 3:], {"timestamp": 1, "pbs_version": "23.06.06", "pbs_server": "vm"}, 0
    if is_set("away"):
        sys.stderr.write("Connection refused\nqstat: cannot connect to server vm (errno=15010)\n")
        print(json.dumps(said))
        sys.exit(255)
    if history and is_set("no-history"):
        die(1, "qstat: PBS is not configured to maintain job history")
    for id in ids:
        number = pbs_number(id)
        if not os.path.exists(os.path.join(folder(number), "job.json")):
            sys.stderr.write(f"qstat: Unknown Job Id {number}.vm\n")
            code = 153
            continue
        job = pbs_job(number)
        if job["job_state"] == "F" and not history:
            sys.stderr.write(f"qstat: {id} Job has finished, use -x or -H to obtain historical job information\n")
            code = 35
            continue
        said.setdefault("Jobs", {})[id] = job
    print(json.dumps(said, indent=4))
    sys.exit(code)


def pbs_number(id):
    return re.match(r"\d*", id)[0] or "0"


def qdel():
    code = 0
    for id in sys.argv[1:]:
        number = pbs_number(id)
        if not os.path.exists(os.path.join(folder(number), "job.json")):
            sys.stderr.write(f"qdel: Unknown Job Id {number}.vm\n")
            code = 153
        elif load(number, "end.json") is not None:
            sys.stderr.write(f"qdel: Job has finished {id}\n")
            code = 35
        else:
            end(number)
    sys.exit(code)


def end(number):
    save(number, "deleted.json", True)
    if load(number, "job.json").get("never"):
        save(number, "end.json", [-15])
        return
    while load(number, "running.json") is None:
        time.sleep(0.01)
    for pid in load(number, "running.json"):
        for sent in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(pid, sent)
            except ProcessLookupError:
                pass


# LSF

LSF = {
    "-n": r"[1-9]\d*", "-W": r"\d+(:[0-5]\d)?", "-oo": r"/[\w./-]+", "-eo": r"/[\w./-]+", "-q": WORD, "-P": WORD,
    "-U": WORD, "-u": WORD, "-R": r"span\[hosts=1\]|rusage\[mem=\d+\]", "-J": r"[\w.-]+(\[\d+-\d+\](%\d+)?)?",
}


def away():
    if is_set("away"):
        die(255, "LSF is down. Please wait ...\nbatch system daemon not responding ... still trying")


def bsub():
    away()
    script = sys.stdin.read()
    job = {"env": {}, "tasks": [None], "seconds": None, "rerun": "True", "index": "LSB_JOBINDEX"}
    queue = None
    for words in directives(script, "#BSUB", True):
        flag, values = words[0], words[1:]
        if flag == "-rn" and not values:
            job["rerun"] = "False"
        elif flag == "-N" and not values:
            pass
        elif flag not in LSF or len(values) != 1:
            die(255, f"{flag.lstrip('-')}: Illegal option.\nJob not submitted.")
        elif not re.fullmatch(LSF[flag], values[0]):
            die(255, f"{values[0]}: Illegal value for {flag}. Job not submitted.")
        elif flag == "-q":
            queue = values[0]
            if queue not in ("normal", "long"):
                die(255, f"{queue}: No such queue. Job not submitted.")
        elif flag == "-W":
            hours, _, minutes = values[0].rpartition(":")
            job["seconds"] = seconds(hours or 0, minutes, 0)
        elif flag == "-J" and "[" in values[0]:
            job["tasks"] = tasks(values[0].split("[")[1].split("]")[0])
    number = create(script, job)
    print(f"Job <{number}> is submitted to " + (f"queue <{queue}>." if queue else "default queue <normal>."))


def lsf_rows(number):
    job, ends = load(number, "job.json"), load(number, "end.json")
    for place, _ in enumerate(job["tasks"]):
        if ends is None:
            yield "RUN", "-", "-"
        elif ends[place] == 0:
            yield "DONE", "-", "-"
        elif load(number, "deleted.json"):
            yield "EXIT", "143", "TERM_OWNER: job killed by owner"
        elif ends[place] == "late":
            yield "EXIT", "140", "TERM_RUNLIMIT: job killed after reaching LSF run time limit"
        else:
            yield "EXIT", str(ends[place] if ends[place] > 0 else 128 - ends[place]), "-"


def bjobs():
    away()
    if sys.argv[1:5] != ["-a", "-noheader", "-o", "jobid stat exit_code exit_reason pend_reason delimiter='|'"]:
        die(255, "bjobs: Illegal option")
    code = 0
    for id in sys.argv[5:]:
        if not os.path.exists(os.path.join(folder(id), "job.json")):
            sys.stderr.write(f"Job <{id}> is not found\n")
            code = 255
            continue
        for stat, exit, reason in lsf_rows(id):
            print(f"{id}|{stat}|{exit}|{reason}|-")
    sys.exit(code)


def bkill():
    away()
    code = 0
    for id in sys.argv[1:]:
        if not os.path.exists(os.path.join(folder(id), "job.json")):
            sys.stderr.write(f"Job <{id}>: No matching job found\n")
            code = 255
        elif load(id, "end.json") is not None:
            sys.stderr.write(f"Job <{id}>: Job has already finished\n")
            code = 255
        else:
            end(id)
            print(f"Job <{id}> is being terminated")
    sys.exit(code)


# Kubernetes: the API server checks every field of a manifest, and so does this.

def text(pattern=r".*"):
    return lambda at, value: None if isinstance(value, str) and re.fullmatch(pattern, value, re.S) else f"{at}: Invalid value: {value!r}"


def number(least):
    return lambda at, value: None if type(value) is int and value >= least else f"{at}: Invalid value: {value!r}"


def flag(at, value):
    return None if type(value) is bool else f"{at}: Invalid value: {value!r}"


def any_value(at, value):
    return None


QUALIFIED = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$")
LABEL = text(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")


def entries(check):
    def each(at, value):
        for key, item in value.items():
            wrong = None if QUALIFIED.match(key) else f"{at}: Invalid value: {key!r}"
            wrong = wrong or check(f"{at}.{key}", item)
            if wrong:
                return wrong
    return each


def quantity(at, value):
    forms = {"cpu": r"[1-9]\d*m?", "memory": r"[1-9]\d*(Ki|Mi|Gi)?"}
    form = forms.get(at.rsplit(".", 1)[1] if "/" not in at else at, r"[1-9]\d*")
    return text(form)(at, str(value))


CONTAINER = {
    "name": text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"), "image": text(r"[^\s]+"), "imagePullPolicy": text("Always|IfNotPresent|Never"),
    "command": [text()], "args": [text()], "env": [{"name": text(r"[\w.-]+"), "value": text()}], "workingDir": text("/.*"),
    "resources": {"requests": entries(quantity), "limits": entries(quantity)},
    "volumeMounts": [{"name": text(), "mountPath": text("/.*"), "readOnly": flag, "subPath": text()}],
}
POD = {
    "restartPolicy": text("Never|OnFailure"), "automountServiceAccountToken": flag, "enableServiceLinks": flag,
    "terminationGracePeriodSeconds": number(0), "activeDeadlineSeconds": number(1), "containers": [CONTAINER],
    "securityContext": {"runAsUser": number(0), "runAsGroup": number(0), "fsGroup": number(0)},
    "nodeSelector": entries(LABEL), "priorityClassName": text(), "serviceAccountName": text(), "tolerations": any_value,
    "volumes": [{"name": text(), "persistentVolumeClaim": any_value, "hostPath": any_value, "nfs": any_value, "secret": any_value}],
}
META = {"generateName": text(r"[a-z]([a-z0-9-]{0,56}[a-z0-9])?-"), "labels": entries(LABEL), "annotations": entries(text())}
JOB = {
    "apiVersion": text("batch/v1"), "kind": text("Job"), "metadata": META,
    "spec": {
        "backoffLimit": number(0), "ttlSecondsAfterFinished": number(0), "suspend": flag,
        "template": {"metadata": {"labels": entries(LABEL), "annotations": entries(text())}, "spec": POD},
    },
}


def wrong_field(schema, value, at):
    """The first error of a value, in the API server's words."""
    if callable(schema):
        return schema(at, value)
    if isinstance(schema, list):
        if not isinstance(value, list):
            return f"{at}: Invalid value: {value!r}"
        return next(filter(None, (wrong_field(schema[0], item, f"{at}[{i}]") for i, item in enumerate(value))), None)
    for key, item in value.items():
        path = f"{at}.{key}" if at else key
        if key not in schema:
            return f'strict decoding error: unknown field "{path}"'
        wrong = wrong_field(schema[key], item, path)
        if wrong:
            return wrong


def wrong_job(job):
    """What the API server checks beside the fields' own forms."""
    pod = job["spec"]["template"]["spec"]
    if "restartPolicy" not in pod:
        return "spec.template.spec.restartPolicy: Required value"
    if not pod.get("containers"):
        return "spec.template.spec.containers: Required value"
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    for i, container in enumerate(pod["containers"]):
        at = f"spec.template.spec.containers[{i}]"
        if not container.get("image"):
            return f"{at}.image: Required value"
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                return f"{at}.volumeMounts[0].name: Not found: {mount['name']!r}"
        limits, requests = (container.get("resources", {}).get(key, {}) for key in ("limits", "requests"))
        for name, asked in requests.items():
            if "/" in name and limits.get(name) != asked:
                return f"{at}.resources.requests: Invalid value: {asked!r}: must be equal to {name} limit"
            if name in limits and amount(asked) > amount(limits[name]):
                return f"{at}.resources.requests: Invalid value: {asked!r}: must be less than or equal to {name} limit"


def amount(value):
    number, unit = re.match(r"(\d+)(\w*)", str(value)).groups()
    return int(number) * {"": 1, "m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[unit]


def merged(base, patch):
    """A strategic merge: containers, volumes and mounts are merged by name or path."""
    if isinstance(base, list) and isinstance(patch, list) and patch and isinstance(patch[0], dict):
        key = "mountPath" if "mountPath" in patch[0] else "name"
        for item in patch:
            at = next((i for i, own in enumerate(base) if own.get(key) == item.get(key)), None)
            base = base + [item] if at is None else base[:at] + [merged(base[at], item)] + base[at + 1:]
        return base
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    result = dict(base)
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merged(base[key], item) if key in base else merged({}, item) if isinstance(item, dict) else item
    return result


def kubectl():
    args = sys.argv[1:]
    if args[:5] == ["patch", "--local", "--filename", "-", "--patch-file"] and args[6:] == ["--output", "json"]:
        return kubectl_patch(args[5])
    if is_set("away"):
        die(1, "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?")
    if args == ["create", "--filename", "-", "--output", "name"]:
        return kubectl_create()
    selector = ["--selector", "app.kubernetes.io/managed-by=longshore", "--output", "json"]
    if args in (["get", "jobs", *selector], ["get", "jobs,pods", *selector]):
        return kubectl_get(args[1].split(","))
    delete = ["delete", "jobs", "--ignore-not-found", "--cascade=foreground", "--wait=false"]
    if args[:5] == delete and len(args) > 5:
        return kubectl_delete(args[5:])
    die(1, f"error: unknown command or flag in {shlex.join(args)}\nSee 'kubectl --help' for usage.")


def kubectl_patch(file):
    sys.path.append("/usr/lib/python3/dist-packages")
    import yaml
    manifest = json.load(sys.stdin)
    try:
        with open(file) as patch:
            patch = yaml.safe_load(patch)
    except OSError:
        die(1, f"error: unable to read patch file: open {file}: no such file or directory")
    print(json.dumps(merged(manifest, patch), indent=4))


def kubectl_create():
    manifest = json.load(sys.stdin)
    wrong = wrong_field(JOB, manifest, "") or wrong_job(manifest)
    if wrong and wrong.startswith("strict"):
        die(1, f'Error from server (BadRequest): error when creating "STDIN": Job in version "v1" cannot be handled as a Job: {wrong}')
    if wrong:
        die(1, f'The Job "" is invalid: {wrong}')
    pod = manifest["spec"]["template"]["spec"]
    container = pod["containers"][0]
    cpus = amount(container["resources"]["requests"]["cpu"])
    job = {
        "name": manifest["metadata"]["generateName"] + os.urandom(3).hex()[:5], "manifest": manifest, "env": {}, "tasks": [None],
        # As the kubelet, which also replaces $(NAME).
        "argv": [word.replace("$$", "$") for word in container["command"]], "seconds": pod.get("activeDeadlineSeconds"),
        "never": cpus > 64 and "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available.",
    }
    number = create(json.dumps(manifest, indent=4), job)
    print(f"job.batch/{job['name']}")


def kubectl_jobs():
    for number in os.listdir(os.path.join(HOME, "jobs")):
        job = load(number, "job.json")
        if job:
            yield number, job, load(number, "end.json"), load(number, "deleted.json")


def kubectl_get(kinds):
    items = []
    for number, job, ends, deleted in kubectl_jobs():
        if deleted and ends is not None:
            continue
        labels = job["manifest"]["metadata"].get("labels", {})
        if labels.get("app.kubernetes.io/managed-by") != "longshore":
            continue
        failed = ends is not None and ends[0] != 0
        late = failed and ends[0] == "late"
        kind = "Failed" if failed else "Complete"
        done = [] if ends is None else [{"type": kind, "status": "True", "reason": "BackoffLimitExceeded" if failed else ""}]
        meta = {"name": job["name"], "labels": labels, "annotations": job["manifest"]["metadata"].get("annotations", {})}
        if deleted:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        items.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "status": {"conditions": done} if done else {"active": 1}})
        pod_labels = job["manifest"]["spec"]["template"]["metadata"].get("labels", {})
        if "pods" not in kinds or pod_labels.get("app.kubernetes.io/managed-by") != "longshore":
            continue
        owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": job["name"], "controller": True}]
        meta = {"name": job["name"] + "-x2v5q", "labels": pod_labels, "ownerReferences": owner}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": pod_status(job, ends, late)})
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def pod_status(job, ends, late):
    if job["never"]:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": job["never"]}
        return {"phase": "Pending", "conditions": [condition]}
    if ends is None:
        return {"phase": "Running", "containerStatuses": [{"name": "longshore", "state": {"running": {}}}]}
    if late:
        return {"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline"}
    code = ends[0] if ends[0] >= 0 else 128 - ends[0]
    ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"name": "longshore", "state": ended}]}


def kubectl_delete(names):
    for number, job, ends, deleted in kubectl_jobs():
        if job["name"] in names and not deleted:
            if ends is None:
                end(number)
            save(number, "deleted.json", True)
            print(f'job.batch "{job["name"]}" deleted')


{"kubectl": kubectl, "qsub": qsub, "qstat": qstat, "qdel": qdel, "bsub": bsub, "bjobs": bjobs, "bkill": bkill}[ME]()
