package kubewrite

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/apply"
	"monopod/internal/daemon/sources"
	"monopod/internal/daemon/state"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/policy"
	"monopod/node/kubeapi"
	"monopod/node/localapi"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
	"monopod/watcher/applied"
)

// running returns a daemon with a runtime, in a synctest bubble. Its store is read every 100 ms, and more is added to the desired state.
func running(t *testing.T, dir string, more model.Desired) (*daemon, *pool.Pool) {
	quiet := slog.New(slog.DiscardHandler)
	changes := &state.Changes{}
	s := state.New(changes, rollout.New(rollout.Config{Log: quiet, Notify: changes.Notify, Clock: func() boottime.Moment { return boottime.Moment{Boot: "b", Since: time.Hour} }}))
	store := applied.NewStoreOn(applied.Disk{Write: os.WriteFile, Replace: os.Rename}, dir)
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, store: store, state: s}
	d.Writer = New(Config{Applier: &apply.Applier{Store: store, State: s, Order: []string{config.SourceFile, config.SourceApplied}, Log: quiet}, Memory: NewMemory(store)})
	p := pool.New(runtimetest.NewFake(), pool.Config{NodeName: "machine"})
	ctx, cancel := context.WithCancel(t.Context())
	var all errgroup.Group
	all.Go(func() error { return s.Rollouts.Run(ctx) })
	all.Go(func() error { return p.Run(ctx) })
	all.Go(func() error { return s.Attach(ctx, p, nil) })
	all.Go(func() error { d.publish(ctx, more); return nil })
	t.Cleanup(func() {
		cancel()
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return d, p
}

// publish reads the store until ctx ends.
func (d *daemon) publish(ctx context.Context, more model.Desired) {
	load := sources.AppliedLoader(policy.Policy{})
	last := map[string]string{"": ""}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		now := map[string]string{}
		desired := more
		desired.Order = []string{config.SourceFile, config.SourceApplied}
		desired.Reported = map[string]bool{config.SourceFile: true, config.SourceApplied: true}
		d.store.Whole().Lock()
		paths, _ := filepath.Glob(filepath.Join(d.store.Dir(), "[a-z]*.yaml"))
		for _, path := range paths {
			data, _ := os.ReadFile(path)
			now[path] = string(data)
			if c, err := load(path, data); err == nil {
				desired.Pods, desired.Objects = append(desired.Pods, c.Pods...), append(desired.Objects, c.Objects...)
			}
		}
		d.store.Whole().Unlock()
		if !reflect.DeepEqual(last, now) {
			d.state.Publish(desired)
			last = now
		}
	}
}

// shown returns a pod as clients see it; nil: they do not.
func (d *daemon) shown(name string) *corev1.Pod {
	views, _ := d.state.Pods()
	for _, v := range views {
		if v.Pod.Name == name {
			return v.Pod
		}
	}
	return nil
}

// script returns a pod that runs a script of the fake runtime.
func script(name, script string) *corev1.Pod {
	p := podOf(name)
	p.Spec.Containers = []corev1.Container{runtimetest.NewContainer("c", script)}
	return p
}

func TestADeletedPodGetsTheTimeThatTheClientGivesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace *int64
		want  time.Duration
	}{"its manifest's": {nil, 30 * time.Second}, "less": {new(int64(5)), 5 * time.Second}, "none": {new(int64(0)), 0}} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			d, _ := running(t, dir, model.Desired{})
			d.write(put(script("web", runtimetest.ScriptStubborn)))
			time.Sleep(10 * time.Second)
			web := d.shown("web")
			if web == nil || web.UID != "uid-web" || web.Status.Phase != corev1.PodRunning {
				t.Fatalf("%s: clients see %+v", name, web)
			}
			removal := kubeapi.Removal{Ref: ref("Pod", "default", "web"), UID: "uid-web", GraceSeconds: c.grace}
			d.write(kubeapi.Change{Remove: []kubeapi.Removal{removal}})
			began := time.Now()
			if web := d.shown("web"); web != nil && web.DeletionTimestamp == nil {
				t.Errorf("%s: the answer comes before clients see that the pod ends", name)
			}
			for d.shown("web") != nil && time.Since(began) < time.Hour {
				time.Sleep(time.Second)
			}
			if took := time.Since(began); took < c.want || took > c.want+3*time.Second {
				t.Errorf("%s: gone after %v, want %v", name, took, c.want)
			}
			d.write(put(script("web", runtimetest.ScriptServe)))
			if web := d.shown("web"); web == nil {
				t.Errorf("%s: the pod does not come back", name)
			}
		})
	}
}

// TestASecondDeletionShortensTheTime of a pod that is ending.
func TestASecondDeletionShortensTheTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		web := script("web", runtimetest.ScriptStubborn)
		web.Spec.TerminationGracePeriodSeconds = new(int64(3600))
		d.write(put(web))
		time.Sleep(10 * time.Second)
		removal := kubeapi.Removal{Ref: ref("Pod", "default", "web"), UID: "uid-web"}
		d.write(kubeapi.Change{Remove: []kubeapi.Removal{removal}})
		time.Sleep(10 * time.Second)
		if web := d.shown("web"); web == nil || web.DeletionTimestamp == nil {
			t.Fatalf("clients see %+v", web)
		}
		removal.GraceSeconds = new(int64(0))
		d.write(kubeapi.Change{Remove: []kubeapi.Removal{removal}})
		time.Sleep(5 * time.Second)
		if web := d.shown("web"); web != nil {
			t.Errorf("clients see %+v", web.ObjectMeta)
		}
	})
}

// TestLabelsOfAPodThatEnds are kept until it is gone, and do not bring it back.
func TestLabelsOfAPodThatEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		web := script("web", runtimetest.ScriptStubborn)
		d.write(put(web))
		time.Sleep(10 * time.Second)
		d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("Pod", "default", "web"), UID: "uid-web"}}})
		web = web.DeepCopy()
		web.DeletionTimestamp, web.Labels = new(metav1.Now()), map[string]string{"late": "yes"}
		d.write(put(web))
		if last := d.cfg.Memory.Last("uid-web"); last == nil || last.Labels["late"] != "yes" || d.store.Note(id("Pod", "web")) != nil {
			t.Errorf("kept are %+v", last)
		}
		time.Sleep(time.Minute)
		if web := d.shown("web"); web != nil {
			t.Errorf("clients see %+v", web.ObjectMeta)
		}
		d.write(put(script("other", runtimetest.ScriptStubborn)))
		time.Sleep(10 * time.Second)
		d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("Pod", "default", "other"), UID: "uid-other"}}})
		other := script("other", runtimetest.ScriptStubborn)
		other.DeletionTimestamp = new(metav1.Now())
		d.write(put(other))
		if d.cfg.Memory.Last("uid-other") == nil || d.cfg.Memory.Last("uid-web") != nil {
			t.Error("the metadata of a pod that is gone is kept")
		}
	})
}

func TestChangesThatThePodDoesNotNoticeDoNotReplaceIt(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		web := script("web", runtimetest.ScriptStubborn)
		web.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		d.write(put(web))
		time.Sleep(10 * time.Second)
		before := d.shown("web")
		ready := func(p *corev1.Pod) corev1.ConditionStatus {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady {
					return c.Status
				}
			}
			return ""
		}
		if ready(before) != corev1.ConditionFalse {
			t.Errorf("before its gate is met: %+v", before.Status.Conditions)
		}
		web = web.DeepCopy()
		web.Generation, web.Labels, web.Finalizers = 2, map[string]string{"a": "b"}, []string{"example.com/f"}
		web.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
		d.write(put(web))
		time.Sleep(10 * time.Second)
		after := d.shown("web")
		if after.UID != before.UID || after.Labels["a"] != "b" || ready(after) != corev1.ConditionTrue {
			t.Errorf("after: %+v", after)
		}
		if a, b := after.Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]; a.ContainerID != b.ContainerID {
			t.Errorf("container %s was replaced by %s", b.ContainerID, a.ContainerID)
		}
		web = web.DeepCopy()
		now := metav1.Now()
		web.DeletionTimestamp, web.DeletionGracePeriodSeconds = &now, new(int64(7))
		d.write(put(web)) // it waits for its finalizer
		removal := kubeapi.Removal{Ref: ref("Pod", "default", "web"), UID: "uid-web", GraceSeconds: new(int64(0))}
		d.write(kubeapi.Change{Remove: []kubeapi.Removal{removal}})
		if web := d.shown("web"); web == nil || web.DeletionTimestamp == nil {
			t.Errorf("it is killed before it could stop: %+v", web)
		}
	})
}

func TestAPodOfAWorkloadIsMadeAnew(t *testing.T) {
	front := &manifests.Object{Kind: "Deployment", Object: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "front"}}}
	front.Origin = manifests.Origin{Source: config.SourceFile, File: "/m/front.yaml", Line: 1}
	made := runtimetest.NewPod("front-0", runtimetest.NewContainer("c", runtimetest.ScriptServe))
	made.Object.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "front", Controller: new(true)}}
	made.Object.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	made.Origin = front.Origin
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		more := model.Desired{Workloads: []*manifests.Object{front}}
		d, p := running(t, dir, more)
		more.Pods, more.Order, more.Reported = []*manifests.Pod{made}, []string{config.SourceFile}, map[string]bool{config.SourceFile: true}
		d.state.Rollouts.Update(more, d.state.Feed(p)) // as the expander does
		time.Sleep(10 * time.Second)
		before := d.shown("front-0")
		if before == nil {
			t.Fatal("the pod does not run")
		}
		of := ref("Pod", "default", "front-0")
		if got := d.Definition(of); !got.Derived || !got.Deletable || got.Applied || got.Place != "Deployment front" {
			t.Errorf("%+v", got)
		}
		other := podOf("front-0")
		if err := d.fails(put(other)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is a pod of Deployment front, defined in /m/front.yaml:1; change it there") {
			t.Errorf("%v", err)
		}
		status := before.DeepCopy()
		status.Status.Conditions = append(status.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
		d.write(put(status))
		time.Sleep(10 * time.Second)
		if now := d.shown("front-0"); !hasCondition(now, corev1.PodReady) || now.UID != before.UID || len(d.state.Bound.OwnConditions(now.UID)) != 1 {
			t.Errorf("clients see %+v", now.Status.Conditions)
		}
		stored := func() (all []types.UID) {
			m := NewMemory(d.store) // that of another start
			byUID := map[types.UID][]corev1.PodCondition{}
			if err := m.readGates(); err != nil {
				t.Error(err)
			}
			m.gatesTo(byUID)
			return slices.Collect(maps.Keys(byUID))
		}
		if got := stored(); len(got) != 1 || got[0] != before.UID {
			t.Errorf("stored: %v", got)
		}
		d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: of, UID: before.UID, GraceSeconds: new(int64(1))}}})
		time.Sleep(20 * time.Second)
		now := d.shown("front-0")
		if now == nil || now.UID == before.UID || now.DeletionTimestamp != nil || hasCondition(now, corev1.PodReady) {
			t.Errorf("before %s, now %+v", before.UID, now)
		}
		if d.write(put(podOf("other"))); len(stored()) > 0 {
			t.Error("conditions of a removed pod are kept")
		}
	})
}

func hasCondition(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func TestAPodThatThisMachineRejectsIsStoredAndFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		for reason, edit := range map[string]func(*corev1.PodSpec){
			"SysctlForbidden": func(s *corev1.PodSpec) {
				s.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
			},
			"PodOSNotSupported": func(s *corev1.PodSpec) { s.OS, s.SecurityContext = &corev1.PodOS{Name: corev1.Windows}, nil },
		} {
			name := strings.ToLower(reason)
			web := script(name, runtimetest.ScriptServe)
			edit(&web.Spec)
			d.write(put(web))
			time.Sleep(time.Minute)
			if web := d.shown(name); web == nil || web.Status.Phase != corev1.PodFailed || web.Status.Reason != reason {
				t.Errorf("%s: clients see %+v", reason, web)
			}
			d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("Pod", "default", name), UID: web.UID, GraceSeconds: new(int64)}}})
			time.Sleep(time.Second)
			if d.shown(name) != nil {
				t.Errorf("%s: it stays", reason)
			}
			_, err := d.cfg.Applier.Apply(t.Context(), localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "a.yaml", Content: manifest(t, web)}}})
			if err == nil {
				t.Errorf("%s: monopod apply accepts it", reason)
			}
			labels := map[string]string{"a": name}
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-d"}, Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: web.Spec},
			}}
			if err := d.fails(put(deployment)); !apierrors.IsInvalid(err) {
				t.Errorf("%s: a Deployment: %v", reason, err)
			}
		}
	})
}

func manifest(t *testing.T, o *corev1.Pod) []byte {
	t.Helper()
	data, err := manifestOf(o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAPodEndsAlthoughFinalizersKeepIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		web := script("web", runtimetest.ScriptStubborn)
		web.Finalizers = []string{"example.com/last"}
		d.write(put(web))
		time.Sleep(10 * time.Second)
		web = web.DeepCopy()
		web.DeletionTimestamp, web.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(5 * time.Second)}, new(int64(5))
		d.write(put(web))
		time.Sleep(4 * time.Second)
		if web := d.shown("web"); web == nil || web.DeletionTimestamp == nil || web.Status.ContainerStatuses[0].State.Running == nil {
			t.Fatalf("clients see %+v", web)
		}
		time.Sleep(3 * time.Second)
		if web := d.shown("web"); web == nil || web.Status.Phase != corev1.PodFailed || web.Status.ContainerStatuses[0].State.Terminated == nil {
			t.Fatalf("after its time clients see %+v", web)
		}
		d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("Pod", "default", "web"), UID: "uid-web", GraceSeconds: new(int64)}}})
		time.Sleep(time.Second)
		if web := d.shown("web"); web != nil {
			t.Errorf("without finalizers clients see %+v", web)
		}
	})
}

// TestTheStatusOfAPodOfALaterSourceIsNotItsDefinition: a pod that an operator reports about stays with the source that defines it, also if
// applied objects could override it.
func TestTheStatusOfAPodOfALaterSourceIsNotItsDefinition(t *testing.T) {
	made := runtimetest.NewPod("web", runtimetest.NewContainer("c", runtimetest.ScriptServe))
	made.Object.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	made.Origin = manifests.Origin{Source: config.SourceAPIServer}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, p := running(t, dir, model.Desired{Pods: []*manifests.Pod{made}})
		d.cfg.Applier.Order = []string{config.SourceApplied, config.SourceAPIServer}
		desired := model.Desired{Pods: []*manifests.Pod{made}, Order: d.cfg.Applier.Order, Reported: map[string]bool{config.SourceApplied: true, config.SourceAPIServer: true}}
		d.state.Rollouts.Update(desired, d.state.Feed(p))
		time.Sleep(10 * time.Second)
		before := d.shown("web")
		if before == nil {
			t.Fatal("the pod does not run")
		}
		status := before.DeepCopy()
		status.Status.Conditions = append(status.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
		d.write(put(status))
		if d.cfg.Applier.Stored(id("Pod", "web")) {
			t.Error("the pod is stored, and overrides its source")
		}
		time.Sleep(10 * time.Second)
		if now := d.shown("web"); now.UID != before.UID || len(d.state.Bound.OwnConditions(now.UID)) != 1 {
			t.Errorf("clients see %+v", now.Status.Conditions)
		}
		status.Spec.ReadinessGates = nil
		if err := d.fails(put(status)); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	})
}

// TestEditsOfRunningPodsNameWhatTheyReplace: a pod that waits has nothing to lose, and pods that are immutable as in Kubernetes surprise nobody.
func TestEditsOfRunningPodsNameWhatTheyReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		two := func(edit func(*corev1.Pod)) *corev1.Pod {
			p := podOf("web")
			p.Spec.Containers = []corev1.Container{runtimetest.NewContainer("a", runtimetest.ScriptServe), runtimetest.NewContainer("b", runtimetest.ScriptServe)}
			edit(p)
			return p
		}
		dry := func(p *corev1.Pod) string {
			warnings, err := d.Write(t.Context(), true, func() (kubeapi.Change, error) { return put(p), nil })
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(warnings, "; ")
		}
		env := []corev1.EnvVar{{Name: "A", Value: "b"}}
		if w := d.write(put(two(func(*corev1.Pod) {}))); len(w) > 0 {
			t.Errorf("a new pod: %v", w)
		}
		time.Sleep(10 * time.Second)
		one := two(func(p *corev1.Pod) { p.Spec.Containers[1].Env = env })
		for _, row := range []struct {
			edited *corev1.Pod
			want   string
		}{
			{two(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), ""},
			{one, "container b of pod default/web is restarted"},
			{two(func(p *corev1.Pod) { p.Spec.Containers[0].Env, p.Spec.Containers[1].Env = env, env }), "containers a, b of pod default/web are restarted"},
			{two(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), "pod default/web is recreated, with empty emptyDirs: what has changed cannot be changed while it runs"},
		} {
			if got := dry(row.edited); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		}
		before := d.shown("web").Status.ContainerStatuses
		if w := d.write(put(one)); strings.Join(w, "; ") != "container b of pod default/web is restarted" {
			t.Errorf("%v", w)
		}
		time.Sleep(time.Minute)
		after := d.shown("web").Status.ContainerStatuses
		if before[0].ContainerID != after[0].ContainerID || before[1].ContainerID == after[1].ContainerID {
			t.Errorf("before %v\nafter %v", before, after)
		}
		d.cfg.Immutable = true
		if got := dry(two(func(*corev1.Pod) {})); got != "" {
			t.Error(got)
		}
	})
}
