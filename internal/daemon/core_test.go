package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/cluster"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemon/history"
	"monopod/internal/daemontest"
	"monopod/internal/dirlock"
	"monopod/internal/model"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/node/admission"
	"monopod/node/localapi"
	"monopod/node/nodemeta"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
	"monopod/watcher"
)

func TestTheStatusLineSaysHowManyPodsRunAndWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCore(t, runtimetest.NewFake())
		says := func(want string, ready bool) {
			t.Helper()
			if line, up := statusLine(c.state, c.gate); line != want || up != ready {
				t.Errorf("%q, ready %t; want %q, %t", line, up, want, ready)
			}
		}
		says("starting", false)
		c.state.Blind(errors.New("no\ncontainerd"))
		says("the runtime does not respond: no; containerd", false)
		start(t, c, &machineParts{})
		done := runtimetest.NewPod("done", runtimetest.NewContainer("c", runtimetest.ScriptSucceed))
		done.Object.Spec.RestartPolicy = corev1.RestartPolicyNever
		failed := runtimetest.NewPod("failed", runtimetest.NewContainer("c", runtimetest.ScriptFail))
		failed.Object.Spec.RestartPolicy = corev1.RestartPolicyNever
		publish(c, servingPod("web"), done, failed)
		says("3 pods: 1 running, 1 completed, 1 not", true)
		if _, err := c.gate.Cordon(localapi.DrainRequest{}); err != nil {
			t.Fatal(err)
		}
		says("3 pods: 1 running, 1 completed, 1 not; cordoned", true)
		if _, err := c.gate.Drain(localapi.DrainRequest{}); err != nil {
			t.Fatal(err)
		}
		if line, _ := statusLine(c.state, c.gate); !strings.HasSuffix(line, "; drained") {
			t.Error(line)
		}
	})
}

// failing is a runtime that fails when fail is closed.
type failing struct {
	*daemontest.FakeRuntime
	fail chan struct{}
}

func (f failing) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-f.fail:
		return errors.New("containerd is gone")
	}
}

// TestTheRuntimeIsOpenedUntilItWorksAndWheneverItFails: pods show why they cannot be seen meanwhile, and each reason is one event.
func TestTheRuntimeIsOpenedUntilItWorksAndWheneverItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCore(t, nil)
		began := time.Now()
		var opened []time.Duration
		rt := failing{&daemontest.FakeRuntime{Fake: runtimetest.NewFake()}, make(chan struct{})}
		c.deps.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
			opened = append(opened, time.Since(began))
			switch len(opened) {
			case 1, 2:
				return nil, errors.New("the disk is full")
			case 3:
				time.Sleep(2 * slowOpen) // by the clock of the bubble
			}
			return rt, nil
		}
		c.state.Publish(model.Desired{Pods: []*manifests.Pod{servingPod("web")}, Reported: map[string]bool{config.SourceFile: true}})
		start(t, c, &machineParts{})
		at := func(when time.Duration, want string) {
			t.Helper()
			time.Sleep(when - time.Since(began))
			synctest.Wait()
			if got := phases(c); got != want {
				t.Errorf("after %v: %s, want %s", when, got, want)
			}
		}
		at(100*time.Millisecond, "the runtime does not respond: the disk is full")
		at(1800*time.Millisecond, "the runtime does not respond: the containerd inside monopod is still starting")
		at(3*time.Second, "web Running")
		first := rt.fail
		rt.fail = make(chan struct{}) // of the runtime that is opened next
		close(first)
		at(3*time.Second, "the runtime does not respond: runtime: containerd is gone")
		at(4*time.Second, "web Running")
		if len(opened) != 4 || opened[1] != FirstReopen || opened[2] != 3*FirstReopen || opened[3] != 3*time.Second+FirstReopen {
			t.Errorf("opened after %v", opened)
		}
		if got := reasons(c); got != "ContainerdUnreachable 1, ContainerdUnreachable 1, ContainerdReachable 2" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestWhileContainerdHasNotAnsweredItIsNamed(t *testing.T) {
	c := newTestCore(t, nil)
	l := newRuntimeLoop(c, &machineParts{})
	if err := l.notYet(); !strings.Contains(err.Error(), "inside monopod") {
		t.Error(err)
	}
	c.cfg.ContainerRuntimeEndpoint = "unix:///run/c.sock"
	if err := l.notYet(); !strings.Contains(err.Error(), "unix:///run/c.sock has not answered yet") {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for want, got := range map[string]error{
		"x: ended unexpectedly": ended(t.Context(), "x", nil), "x: EOF": ended(t.Context(), "x", errors.New("EOF")), "": ended(over, "x", errors.New("EOF")),
	} {
		if want == "" && got != nil || want != "" && (got == nil || got.Error() != want) {
			t.Errorf("%v, want %q", got, want)
		}
	}
}

// anyPod admits every pod.
func anyPod(*corev1.Pod) error { return nil }

func TestTheHistoryOfAPodIsItsRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCore(t, runtimetest.NewFake())
		r := history.Revisions{Of: c.state.Rollouts}
		web := servingPod("web")
		if h := r.History(web.Key()); h != nil {
			t.Errorf("of an unknown pod: %+v", h)
		}
		start(t, c, &machineParts{})
		publish(c, web)
		publish(c, runtimetest.Edited(web, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }))
		h := r.History(web.Key())
		if h == nil || h.Wanted != 2 || h.Active != 2 || len(h.Revisions) != 2 || h.Rollback != "" || h.Name != "web" {
			t.Fatalf("%+v", h)
		}
		if first := h.Revisions[0]; first.Number != 1 || first.Source != "/m/web.yaml:1" || first.Outcome != string(rollout.Ready) || !strings.Contains(string(first.Manifest), "busybox:1") {
			t.Errorf("%+v", first)
		}
		refused := errors.New("refused")
		if _, err := r.Rollback(web.Key(), 1, func(pod *corev1.Pod) error {
			if pod.Name != "web" || pod.Spec.Containers[0].Image != "busybox:1" {
				t.Errorf("asked about %+v", pod)
			}
			return refused
		}); !errors.Is(err, refused) || r.History(web.Key()).Active != 2 {
			t.Errorf("a revision that is refused: %v", err)
		}
		if h, err := r.Rollback(web.Key(), 1, anyPod); err != nil || h.Active != 1 || h.Wanted != 2 || h.Warning != "" || !strings.Contains(h.Rollback, "revision 1 runs instead of 2") {
			t.Errorf("%+v, %v", h, err)
		}
		if h, err := r.Rollback(web.Key(), 7, anyPod); err == nil || h != nil {
			t.Errorf("to a revision that is not kept: %+v, %v", h, err)
		}
		if h, err := r.Rollback(runtimetest.KeyOf("other"), 1, anyPod); err == nil || h != nil {
			t.Errorf("of an unknown pod: %+v, %v", h, err)
		}
	})
}

func TestTheMachineIsListedWithItsObjects(t *testing.T) {
	c := newTestCore(t, nil)
	pressure := []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}
	l := &objectList{node: "node", state: c.state, gate: c.gate, pressure: func() []corev1.NodeCondition { return pressure }}
	settings := &manifests.Object{Kind: "ConfigMap", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, Origin: manifests.Origin{Source: config.SourceFile, File: "/m/a.yaml", Line: 4}}
	c.state.Publish(model.Desired{Objects: []*manifests.Object{settings}})
	c.state.Blind(errors.New("no containerd"))
	all := l.list()
	n, ok := all[0].(*corev1.Node)
	if len(all) != 2 || !ok || n.Name != "node" || n.Spec.Unschedulable || len(n.Status.Conditions) != 2 {
		t.Fatalf("%+v", all)
	}
	if ready := n.Status.Conditions[1]; n.Status.Conditions[0].Type != corev1.NodeDiskPressure || ready.Status != corev1.ConditionFalse || ready.Reason != "RuntimeDown" || !strings.Contains(ready.Message, "no containerd") {
		t.Errorf("%+v", n.Status.Conditions)
	}
	if all[1].GetName() != "settings" || !strings.Contains(strings.Join(valuesOf(all[1].GetAnnotations()), " "), "/m/a.yaml:4") || len(settings.Object.GetAnnotations()) > 0 {
		t.Errorf("%+v", all[1])
	}
	if _, err := c.gate.Cordon(localapi.DrainRequest{}); err != nil {
		t.Fatal(err)
	}
	if n := l.machine(nil); !n.Spec.Unschedulable || n.Status.Conditions[1].Status != corev1.ConditionTrue {
		t.Errorf("cordoned: %+v", n)
	}
}

func valuesOf(m map[string]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

func TestCopiesOfSourcesThatAreNoMoreAreRemovedOnceAllIsRead(t *testing.T) {
	c := newTestCore(t, nil)
	l := newDesiredLoop(c, []watcher.Source{})
	kept, gone := filepath.Join(l.copies, config.SourceHTTP, "copy"), filepath.Join(l.copies, "removed", "copy")
	testfiles.Write(t, kept, "x")
	testfiles.Write(t, gone, "x")
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	d := model.Desired{Order: []string{config.SourceHTTP}, Reported: map[string]bool{}}
	if l.take(d); !there(gone) {
		t.Error("a copy is removed while its pods must stay")
	}
	if _, ok := c.state.Desired(); !ok {
		t.Error("nothing is published")
	}
	d.Reported[config.SourceHTTP] = true
	if l.take(d); there(gone) || !there(kept) {
		t.Errorf("the removed source is there: %t, the other: %t", there(gone), there(kept))
	}
	testfiles.Write(t, gone, "x")
	if l.take(d); !there(gone) {
		t.Error("it looks again at each change")
	}
}

// TestADaemonHoldsItsDirectoriesUntilItIsClosed: two daemons in one directory would damage it.
func TestADaemonHoldsItsDirectoriesUntilItIsClosed(t *testing.T) {
	c := newTestCore(t, runtimetest.NewFake())
	dir := shortDir(t)
	c.cfg.RootDirectory, c.cfg.StateDirectory, c.cfg.Socket = filepath.Join(dir, "root"), filepath.Join(dir, "state"), filepath.Join(dir, "s")
	first, err := Open(c.cfg, c.deps)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Open(c.cfg, c.deps); err == nil {
		second.Close()
		t.Error("a second one holds the same directories")
	}
	first.loops = append(first.loops, func(context.Context) error { return errHandedOver })
	if err := first.Run(t.Context()); err != nil {
		t.Errorf("another agent takes over: %v", err)
	}
	first.Close()
	testfiles.Write(t, filepath.Join(dir, "file"), "")
	c.cfg.Socket = filepath.Join(dir, "file", "s")
	if third, err := Open(c.cfg, c.deps); err == nil {
		third.Close()
		t.Error("it listens below a file")
	}
	locks, err := dirlock.TakeLocks(0, c.cfg.StateDirectory, c.cfg.RootDirectory)
	if err != nil {
		t.Fatalf("one that could not be opened holds its directories: %v", err)
	}
	locks.Release()
}

func TestAdmissionSeesPrioritiesAndWhatHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCore(t, runtimetest.NewFake())
		if _, err := drainPods(c.state); err == nil {
			t.Error("all pods are known before any was looked at")
		}
		start(t, c, &machineParts{})
		critical := runtimetest.Edited(servingPod("critical"), func(p *corev1.Pod) { p.Spec.Priority = new(int32(7)) })
		publish(c, servingPod("web"), critical)
		c.gate.Attach(admission.Pool{})
		pods, err := drainPods(c.state)
		if err != nil || len(pods) != 2 || pods[0].Key.Name != "critical" || pods[0].Priority != 7 || pods[1].Priority != 0 || pods[0].Stopped || pods[1].Stopped {
			t.Errorf("%+v, %v", pods, err)
		}
	})
}

// TestLabelsOfClientsDecideWherePodsRun: from the write to the pool, and after a restart.
func TestLabelsOfClientsDecideWherePodsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCore(t, runtimetest.NewFake())
		start(t, c, &machineParts{labels: cluster.Selection(c.cfg)})
		web := servingPod("web")
		web.Object.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		label := func(value string) {
			if err := c.nodeMeta.Set(nodemeta.Metadata{Labels: map[string]string{"disk": value}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		label("hdd")
		publish(c, web)
		if got := phases(c); got != "web Pending NodeAffinity" {
			t.Error(got)
		}
		label("ssd")
		if got := phases(c); got != "web Running" {
			t.Error(got)
		}
		label("hdd")
		if got := phases(c); got != "web Running" {
			t.Errorf("a label stops a running pod: %s", got)
		}
		again, err := newCore(c.cfg, c.deps)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.nodeMeta.Load(); err != nil || again.nodeMeta.Current().Labels["disk"] != "hdd" {
			t.Errorf("after a restart: %+v, %v", again.nodeMeta.Current(), err)
		}
	})
}
