package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

// workloadsYAML has an object of each kind that `get` has columns for.
func workloadsYAML() string {
	template := "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: 'example.com/app:1', command: [sh, -c, " + strconv.Quote(runtimetest.ScriptServe) + "], ports: [{name: http, containerPort: 8080}]}]}}"
	return strings.ReplaceAll(`apiVersion: apps/v1
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
`, "TEMPLATE", template)
}

func TestLogsOfAllContainersHaveEachInItsOrder(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe, runtimetest.ScriptServe))
	d.start()
	d.shows("2/2", "get", "pods")
	d.logLines("web", "b", "2026-01-01T00:00:01Z stdout F two\n")
	d.logLines("web", "a", "2026-01-01T00:00:02Z stdout F one\n")
	d.says(0, "one\ntwo\n", "", "logs", "web", "--all-containers")
	d.says(0, "[pod/web/a] one\n[pod/web/b] two\n", "", "logs", "web", "--all-containers", "--prefix")
}

func TestWhatTheCommandsPrintOfObjects(t *testing.T) {
	d := newDaemon(t)
	d.fake.StopClock()
	d.prog.Machine.Now = d.fake.Now
	d.put("all.yaml", workloadsYAML())
	d.start()
	d.shows("2/2", "get", "deploy")
	for n, args := range [][]string{
		{"get", "deploy"},
		{"get", "deployments.apps", "web", "-o", "wide"},
		{"get", "all"},
		{"get", "svc,cm"},
		{"get", "secrets"},
		{"get", "secret", "login", "-o", "yaml"},
		{"get", "cj", "-A"},
		{"get", "job/once"},
		{"get", "no"},
		{"get", "deploy/web", "svc/web", "-o", "name"},
		{"get", "deploy", "-l", "tier=front", "--no-headers"},
		{"get", "deploy", "-l", "tier!=front"},
		{"get", "pods", "-l", "app in (web)", "-o", "name"},
		{"get", "pods", "-o", "jsonpath={.items[*].metadata.name}"},
		{"get", "deploy", "web", "-o", `jsonpath={.spec.replicas}{"\n"}`},
		{"get", "cm", "-o", "custom-columns=NAME:.metadata.name,A:.data.a,NONE:.data.z"},
		{"get", "pods", "web-0", "nope", "web-1", "-o", "name"},
		{"get", "deploy", "nope"},
		{"get", "deploy", "web", "-l", "a=b"},
		{"get", "pods", "-l", "a b c"},
		{"get", "pods", "-o", "jsonpath={.a"},
		{"get", "deploy", "-w"},
		{"get", "sts"},
		{"get", "widgets"},
		{"get", "all", "web"},
		{"get", "deploy/"},
		{"get", "jobs", "-n", "other"},
		{"describe", "deploy/web"},
		{"describe", "svc", "web"},
		{"describe", "cj/nightly", "-n", "other"},
		{"describe", "cm/settings"},
		{"logs", "deploy/web"},
		{"logs", "cm/settings"},
		{"logs", "job/once"},
		{"logs", "deploy/nope"},
		{"logs", "-l", "app=web", "--prefix"},
		{"logs", "web-0", "--all-containers"},
		{"logs", "web-0", "--all-containers", "-c", "c"},
		{"wait", "deploy/web", "--for=condition=available"},
		{"wait", "job/once", "--for=condition=complete", "--timeout=1ns"},
		{"wait", "deploy/web", "--for=phase=Running"},
		{"wait", "job/nope", "--for=delete"},
		{"why", "deploy/web"},
		{"events", "cm/settings"},
		{"scale", "deploy/web", "--replicas=3"},
		{"scale", "deploy/web"},
		{"scale", "ds/web", "--replicas=1"},
		{"restart", "deploy/web"},
		{"restart", "pod/web-0"},
		{"port-forward", "svc/web", "81"},
		{"get", "all,cm"},
		{"get", "rc"},
		{"describe", "rc/old"},
		{"why", "cj/nightly", "-n", "other"},
		{"why", "cm/settings"},
		{"why", "svc/front"},
		{"why", "rc/old"},
		{"get", "cm/nope", "-o", "yaml"},
	} {
		name := fmt.Sprintf("%02d-%s", n, strings.Trim(unsafeName.ReplaceAllString(strings.Join(args, "-"), "-"), "-"))
		t.Run(name, func(t *testing.T) {
			if args[0] == "logs" {
				d.logLines("web-0", "c", "2026-01-01T00:00:01Z stdout F one\n")
				d.logLines("web-1", "c", "2026-01-01T00:00:01Z stdout F two\n")
			}
			r := d.cmd(args...)
			got := fmt.Sprintf("$ monopod %s\n%s", strings.Join(args, " "), d.steady(r.stdout))
			if r.stderr != "" {
				got += "-- stderr --\n" + d.steady(r.stderr)
			}
			testfiles.Compare(t, filepath.Join("testdata", "objects", name+".txt"), got+fmt.Sprintf("-- exit code %d --\n", r.code))
		})
	}
	if r := d.cmd("get", "secret", "login", "-o", "json"); strings.Contains(r.stdout, "hunter2") || strings.Contains(r.stdout, "aHVudGVyMg") {
		t.Errorf("a secret is shown: %s", r.stdout)
	}
	var list corev1.List
	if r := d.cmd("get", "all", "-o", "json"); json.Unmarshal([]byte(r.stdout), &list) != nil || len(list.Items) != 8 {
		t.Errorf("get all has %d items: %s", len(list.Items), r.stdout)
	}
}

// TestAPodOfAWorkloadWhoseNameIsTakenIsReported: it was only logged.
func TestAPodOfAWorkloadWhoseNameIsTakenIsReported(t *testing.T) {
	d := newDaemon(t)
	d.put("a.yaml", daemontest.PodYAML("web-0", runtimetest.ScriptServe))
	d.put("b.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'example.com/app:1'}]}}}\n")
	d.start()
	said := d.path("manifests", "b.yaml") + ":1: the pod default/web-0 of this workload is not run: another one of that name is defined in " + d.path("manifests", "a.yaml") + ":1"
	d.shows(said, "get", "sources")
	d.shows(said, "why")
	d.shows("web-1", "get", "pods")
	if err := os.Remove(d.path("manifests", "a.yaml")); err != nil {
		t.Fatal(err)
	}
	d.shows("2/2", "get", "deploy")
	d.eventually("nothing is reported any more", func() error {
		if r := d.cmd("get", "sources"); strings.Contains(r.stdout, "Conflict") {
			return errors.New(r.stdout)
		}
		return nil
	})
}

// TestScaleAndRestartChangeWhatWasApplied: and nothing else of it.
func TestScaleAndRestartChangeWhatWasApplied(t *testing.T) {
	d := newDaemon(t)
	d.start()
	file := d.path("web.yaml")
	testfiles.Write(t, file, workloadsYAML())
	if r := d.cmd("apply", "-f", file, "--wait"); r.code != program.ExitOK {
		t.Fatal(r)
	}
	before := d.cmd("get", "deploy", "web", "-o", "jsonpath={.spec.template}").stdout
	if r := d.cmd("scale", "deploy/web", "--replicas=3"); r.code != program.ExitOK || r.stdout != "deployment.apps/web scaled\n" {
		t.Fatalf("%+v", r)
	}
	if r := d.cmd("wait", "deploy/web"); r.code != program.ExitOK {
		t.Errorf("%+v", r)
	}
	d.shows("3/3", "get", "deploy", "web")
	if after := d.cmd("get", "deploy", "web", "-o", "jsonpath={.spec.template}").stdout; after != before {
		t.Errorf("the template is %s, was %s", after, before)
	}
	ids := func() string {
		return d.cmd("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}").stdout
	}
	was := strings.Fields(ids())
	if r := d.cmd("restart", "deploy/web"); r.code != program.ExitOK || r.stdout != "deployment.apps/web restarted\n" {
		t.Fatalf("%+v", r)
	}
	d.eventually("all containers are others", func() error {
		now := ids()
		for _, id := range was {
			if strings.Contains(now, id) || len(strings.Fields(now)) != len(was) {
				return fmt.Errorf("%s of %s is still there: %s", id, was, now)
			}
		}
		return nil
	})
	d.shows("3/3", "get", "deploy", "web")
	if r := d.cmd("scale", "deploy/web", "--replicas=0"); r.code != program.ExitOK {
		t.Errorf("%+v", r)
	}
	d.shows("0/0", "get", "deploy", "web")
	testfiles.Write(t, file, daemontest.PodYAML("alone", runtimetest.ScriptServe))
	if r := d.cmd("apply", "-f", file, "--wait"); r.code != program.ExitOK {
		t.Fatal(r)
	}
	before = ids()
	if r := d.cmd("restart", "pod", "alone"); r.code != program.ExitOK || r.stdout != "pod/alone restarted\n" {
		t.Fatalf("%+v", r)
	}
	d.eventually("its container is another", func() error {
		if now := ids(); now == before || len(strings.Fields(now)) != 1 {
			return fmt.Errorf("%q, was %q", now, before)
		}
		return nil
	})
	if r := d.cmd("scale", "rc/old", "--replicas=2"); r.code != program.ExitOK || r.stdout != "replicationcontroller/old scaled\n" {
		t.Errorf("%+v", r)
	}
	d.shows("old-1", "get", "pods")
}

// unsafeName is what names of golden files do not have.
var unsafeName = regexp.MustCompile(`[^A-Za-z0-9=]+`)
