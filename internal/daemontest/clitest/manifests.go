package clitest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/logs"
	"monopod/runner/runtimetest"
)

// Reachable is a pod with a port, and with two containers.
const Reachable = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: app, image: i, ports: [{name: http, containerPort: 80}]}
  - {name: other, image: i, stdin: true}
`

// PodOfPriority is the manifest of a pod of a priority whose container runs a script of the fake.
func PodOfPriority(name, script string, priority int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  priority: %d\n  containers: [{name: a, image: busybox, command: [%s]}]\n", name, priority, script)
}

// Edition is the manifest of web with another image each.
func Edition(tag string) string {
	return strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:"+tag, 1)
}

// WorkloadsYAML has objects of most kinds.
func WorkloadsYAML() string {
	template := "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: 'example.com/app:1', command: [sh, -c, " + strconv.Quote(runtimetest.ScriptServe) + "], ports: [{name: http, containerPort: 8080}]}]}}"
	return strings.ReplaceAll(workloads, "TEMPLATE", template)
}

const workloads = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: TEMPLATE}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: main, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b, c: d}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: hunter2}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: other}
spec: {schedule: '0 3 * * *', timeZone: UTC, suspend: true, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'example.com/app:1'}]}}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'example.com/app:1'}]}}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec: {replicas: 0, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: c, image: 'example.com/app:1'}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// StartWorkloads starts a daemon with WorkloadsYAML on a clock that stands still, and waits for its pods.
func (d *Daemon) StartWorkloads() {
	d.T.Helper()
	d.Fake.StopClock()
	d.Prog.Machine.Now = d.Fake.Now
	d.Put("all.yaml", WorkloadsYAML())
	d.Start()
	d.Ready("web-0")
	d.Ready("web-1")
}

// StartSettled starts a daemon with pods that run, crash and cannot be pulled, and with a file that is refused, and waits until all pods have
// reached their final state.
func (d *Daemon) StartSettled() {
	d.T.Helper()
	d.fill()
	d.Fake.StopClock() // else it is tried again some time
	d.Prog.Machine.Now = d.Fake.Now
	d.Start()
	d.Phase("crash", "CrashLoopBackOff")
	d.Phase("pull", "ImagePullBackOff")
	d.Ready("web")
}

func (d *Daemon) fill() {
	d.Fake.Fail = func(key manifests.Key, a runner.Action) error {
		if key.Name == "pull" && a.Kind == runner.EnsureImage {
			return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("pull example.com/app:1: no such host")}
		}
		return nil
	}
	web := daemontest.PodYAML("web", runtimetest.ScriptServe, runtimetest.ScriptServe) + `    ports: [{containerPort: 80, hostPort: 8080, protocol: TCP}]
    resources: {limits: {cpu: 2, memory: 64Mi}}
    volumeMounts: [{name: data, mountPath: /data}, {name: host, mountPath: /host, readOnly: true}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: host, hostPath: {path: /srv, type: Directory}}
`
	// The flow style of PodYAML ends with the last container, so that one is written out.
	d.Put("10-web.yaml", strings.Replace(web, `  - {name: b, image: example.com/app:1, command: [sh, -c, `+strconv.Quote(runtimetest.ScriptServe)+"]}\n",
		"  - name: b\n    image: example.com/app:1\n    command: [sh, -c, "+strconv.Quote(runtimetest.ScriptServe)+"]\n", 1))
	d.Put("20-crash.yaml", daemontest.PodYAML("crash", runtimetest.ScriptFail))
	d.Put("30-pull.yaml", strings.Replace(daemontest.PodYAML("pull", runtimetest.ScriptServe), "metadata: {", "metadata: {namespace: other, ", 1))
	d.Put("40-again.yaml", daemontest.PodYAML("web", runtimetest.ScriptFail))
	d.Put("50-broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containers:\n  - {name: c, imag: x}\n")
	d.Put("README.txt", "not a manifest\n")
}

// WriteLogs writes the output of the containers of web and crash, because the fake runs nothing.
func (d *Daemon) WriteLogs() {
	d.T.Helper()
	d.LogLines("web", "a", "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n")
	d.LogLines("web", "b", "2026-01-01T00:00:01Z stdout P half \n2026-01-01T00:00:02Z stdout F line\n")
	d.LogLines("crash", "a", "2026-01-01T00:00:01Z stderr F it hurts\n")
}

// LogLines writes the log of the last instance of a container, with its link, and returns its path.
func (d *Daemon) LogLines(pod, container, text string) string {
	d.T.Helper()
	p := d.Pod(pod)
	var id string
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			id = strings.TrimPrefix(c.ContainerID, "containerd://")
		}
	}
	path := d.Path("logs", "pods", fmt.Sprintf("default_%s_%s", pod, p.UID), container, "3.log")
	testfiles.Write(d.T, path, text)
	if err := logs.Link(d.Path("logs", "containers"), logs.LinkName{Pod: pod, Namespace: "default", Container: container, ID: id}, path); err != nil {
		d.T.Fatal(err)
	}
	return path
}

var (
	// foreignText matches messages with a column: package manifests words them, and tests them.
	foreignText = regexp.MustCompile(`(\S+:\d+:\d+: (?:pod \S+: )?(?:[\w\[\].]+: )?)[^\n]+`)
	uuids       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	stamps      = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	ages        = regexp.MustCompile(`\b\d+(ms|s|m)\b( ago)?`)
	ids         = regexp.MustCompile(`containerd://c\d+`)
	happened    = regexp.MustCompile(`(?s)\nEvents:\n  TYPE .*`)
	podIPs      = regexp.MustCompile(`\b10\.0\.0\.\d+`)
	nextTry     = regexp.MustCompile(`(Next Try: +)now\b`) // the clock of the daemon stands still, that of a client does not
	again       = regexp.MustCompile(`\bagain now\b`)
	spaces      = regexp.MustCompile(`(\S) {2,}`)
)

// OwnText leaves only place, pod and field of messages that are not ours.
func OwnText(s string) string { return foreignText.ReplaceAllString(s, "$1...") }

// Narrow replaces the spaces between columns by two.
func Narrow(s string) string { return spaces.ReplaceAllString(s, "$1  ") }

// Steady replaces text that differs in each run.
func (d *Daemon) Steady(s string) string {
	s = OwnText(strings.ReplaceAll(s, d.Dir, "$DIR"))
	s = happened.ReplaceAllString(s, "\nEvents: ...\n")
	s = uuids.ReplaceAllString(s, "UID")
	s = stamps.ReplaceAllString(s, "TIME")
	s = ages.ReplaceAllString(s, "AGE")
	s = ids.ReplaceAllString(s, "containerd://ID")
	s = podIPs.ReplaceAllString(s, "POD-IP")
	s = again.ReplaceAllString(nextTry.ReplaceAllString(s, "${1}TIME (in AGE)"), "again in AGE")
	return Narrow(s)
}

// unsafeName is what names of golden files do not have.
var unsafeName = regexp.MustCompile(`[^A-Za-z0-9=_]+`)

// Golden runs commands one after the other, each in a subtest, and compares what they print with files below testdata. Each file is named
// after its command line. alter changes output before that; nil: nothing does.
func (d *Daemon) Golden(t *testing.T, dir string, alter func(string) string, commands ...[]string) {
	t.Helper()
	for _, args := range commands {
		name := strings.Trim(unsafeName.ReplaceAllString(strings.ReplaceAll(strings.Join(args, "-"), "/", "_"), "-"), "-")
		t.Run(name, func(t *testing.T) {
			r := d.Cmd(args...)
			out := d.Steady(r.Stdout)
			if alter != nil {
				out = alter(out)
			}
			got := fmt.Sprintf("$ monopod %s\n%s", strings.Join(args, " "), out)
			if r.Stderr != "" {
				got += "-- stderr --\n" + d.Steady(r.Stderr)
			}
			testfiles.Compare(t, filepath.Join("testdata", dir, name+".txt"), got+fmt.Sprintf("-- exit code %d --\n", r.Code))
		})
	}
}

// ReadFile returns the content of a file.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
