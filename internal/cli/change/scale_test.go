package change

import (
	"fmt"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

func TestWhatIsSaidOfObjectsThatCannotChange(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartWorkloads()
	d.Golden(t, "workloads", nil, [][]string{
		{"wait", "deploy/web", "--for=condition=available"},
		{"wait", "job/once", "--for=condition=complete", "--timeout=1ns"},
		{"wait", "deploy/web", "--for=phase=Running"},
		{"wait", "job/nope", "--for=delete"},
		{"scale", "deploy/web", "--replicas=3"},
		{"scale", "deploy/web"},
		{"scale", "ds/web", "--replicas=1"},
		{"restart", "deploy/web"},
		{"restart", "pod/web-0"},
	}...)
}

// TestScaleAndRestartChangeWhatWasApplied: and nothing else of it.
func TestScaleAndRestartChangeWhatWasApplied(t *testing.T) {
	d := newDaemon(t)
	d.Start()
	file := d.Path("web.yaml")
	testfiles.Write(t, file, clitest.WorkloadsYAML())
	if r := d.Cmd("apply", "-f", file, "--wait"); r.Code != program.ExitOK {
		t.Fatal(r)
	}
	before := d.Cmd("get", "deploy", "web", "-o", "jsonpath={.spec.template}").Stdout
	if r := d.Cmd("scale", "deploy/web", "--replicas=3"); r.Code != program.ExitOK || r.Stdout != "deployment.apps/web scaled\n" {
		t.Fatalf("%+v", r)
	}
	if r := d.Cmd("wait", "deploy/web"); r.Code != program.ExitOK {
		t.Errorf("%+v", r)
	}
	d.Shows("3/3", "get", "deploy", "web")
	if after := d.Cmd("get", "deploy", "web", "-o", "jsonpath={.spec.template}").Stdout; after != before {
		t.Errorf("the template is %s, was %s", after, before)
	}
	ids := func() string {
		return d.Cmd("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}").Stdout
	}
	was := strings.Fields(ids())
	if r := d.Cmd("restart", "deploy/web"); r.Code != program.ExitOK || r.Stdout != "deployment.apps/web restarted\n" {
		t.Fatalf("%+v", r)
	}
	d.Eventually("all containers are others", func() error {
		now := ids()
		for _, id := range was {
			if strings.Contains(now, id) || len(strings.Fields(now)) != len(was) {
				return fmt.Errorf("%s of %s is still there: %s", id, was, now)
			}
		}
		return nil
	})
	d.Shows("3/3", "get", "deploy", "web")
	if r := d.Cmd("scale", "deploy/web", "--replicas=0"); r.Code != program.ExitOK {
		t.Errorf("%+v", r)
	}
	d.Shows("0/0", "get", "deploy", "web")
	testfiles.Write(t, file, daemontest.PodYAML("alone", runtimetest.ScriptServe))
	if r := d.Cmd("apply", "-f", file, "--wait"); r.Code != program.ExitOK {
		t.Fatal(r)
	}
	before = ids()
	if r := d.Cmd("restart", "pod", "alone"); r.Code != program.ExitOK || r.Stdout != "pod/alone restarted\n" {
		t.Fatalf("%+v", r)
	}
	d.Eventually("its container is another", func() error {
		if now := ids(); now == before || len(strings.Fields(now)) != 1 {
			return fmt.Errorf("%q, was %q", now, before)
		}
		return nil
	})
	if r := d.Cmd("scale", "rc/old", "--replicas=2"); r.Code != program.ExitOK || r.Stdout != "replicationcontroller/old scaled\n" {
		t.Errorf("%+v", r)
	}
	d.Shows("old-1", "get", "pods")
}

// TestAnObjectOfAFileIsNotRestartedAndTheFileIsNamed: the document that restart would apply is none that the user has ever seen.
func TestAnObjectOfAFileIsNotRestartedAndTheFileIsNamed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Ready("web")
	r := d.Cmd("restart", "pod/web")
	if r.Code != program.ExitError || strings.Contains(r.Stderr, ".json") || !strings.HasPrefix(r.Stderr, "monopod: pod default/web: is defined in "+d.Path("manifests", "web.yaml")) {
		t.Errorf("%+v", r)
	}
}
