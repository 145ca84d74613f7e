package run

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/runner/ctrd"
	"monopod/runner/runtimetest"
)

// removingRuntime is still taking pods apart.
type removingRuntime struct {
	daemontest.FakeRuntime
	removals func() []ctrd.Removal
}

func (r *removingRuntime) Removals() []ctrd.Removal { return r.removals() }

func TestARemovedPodIsShownUntilNothingOfItIsLeft(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	var over atomic.Bool
	removal := func(name string) ctrd.Removal {
		pod := &manifests.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}, Origin: manifests.Origin{File: "/m/" + name + ".yaml"}}
		return ctrd.Removal{Pod: pod, UID: "u", Since: time.Now().Add(-20 * time.Second), Failed: 3, Err: errors.New("unmount /x: device or resource busy"), Next: time.Now().Add(8 * time.Second)}
	}
	d.Prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return &removingRuntime{daemontest.FakeRuntime{Fake: d.Fake}, func() []ctrd.Removal {
			if over.Load() {
				return nil
			}
			return []ctrd.Removal{removal("web"), removal("old"), removal("old")}
		}}, nil
	}
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe)) // it runs again: its earlier sandbox is not shown
	d.Start()
	d.Phase("web", "Running")
	const text = "failed 3 times: unmount /x: device or resource busy"
	if r := d.Cmd("get", "pods", "-o", "wide"); strings.Count(r.Stdout, "\n") != 3 || !strings.Contains(r.Stdout, "Terminating") || !strings.Contains(r.Stdout, text) {
		t.Errorf("get:\n%s%s", r.Stdout, r.Stderr)
	}
	for _, args := range [][]string{{"why"}, {"why", "old"}, {"describe", "pod", "old"}} {
		if r := d.Cmd(args...); r.Code != program.ExitOK || !strings.Contains(r.Stdout, text) {
			t.Errorf("%v:\n%s%s", args, r.Stdout, r.Stderr)
		}
	}
	over.Store(true)
	if r := d.Cmd("get", "pods"); strings.Contains(r.Stdout, "old") {
		t.Errorf("it is gone:\n%s", r.Stdout)
	}
}
