package kubewrite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/apply"
	"monopod/internal/daemon/sources"
	"monopod/internal/daemon/state"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/manifests/policy"
	"monopod/node/apiserver"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
	"monopod/node/nodemeta"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
	"monopod/watcher"
	"monopod/watcher/applied"
	"monopod/watcher/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is a Writer with a store and a watcher, and without a runtime.
type daemon struct {
	*Writer
	t     *testing.T
	store *applied.Store
	state *state.Store
	// node is what clients see, cordons are what was asked for.
	node    *corev1.Node
	cordons []bool
}

// newDaemon returns one whose static pods are those of a text, and which stores in a directory.
func newDaemon(t *testing.T, dir, static string) *daemon {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	changes := &state.Changes{}
	s := state.New(changes, rollout.New(rollout.Config{Log: quiet, Notify: changes.Notify, Clock: boottime.Now}))
	s.Blind(errors.New("no runtime"))
	store := applied.NewStoreOn(applied.Disk{Write: os.WriteFile, Replace: os.Rename}, filepath.Join(dir, "applied"))
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, filepath.Join(dir, "static", "all.yaml"), "# nothing\n"+static)
	d := &daemon{t: t, store: store, state: s, node: &corev1.Node{}}
	d.node.Name = "machine"
	a := &apply.Applier{Store: store, State: s, Order: []string{config.SourceFile, config.SourceApplied}, Log: quiet}
	d.Writer = New(Config{
		Applier: a, Memory: NewMemory(store), Node: func() *corev1.Node { return d.node },
		Cordon:   func(closed bool) error { d.cordons = append(d.cordons, closed); return nil },
		NodeMeta: nodemeta.NewStore(filepath.Join(dir, "node.json"), nil), NodeLabels: map[string]string{"site": "lab"},
	})
	d.watch(filepath.Join(dir, "static"))
	return d
}

// facts returns those of the Node.
func (d *daemon) facts() (f apiserver.Facts) {
	if d.cfg.NodeMeta != nil {
		f.Set = d.cfg.NodeMeta.Current()
	}
	return f
}

// watch publishes the desired state until the test ends.
func (d *daemon) watch(static string) {
	quiet := slog.New(slog.DiscardHandler)
	w := watcher.New(
		quiet,
		file.New(file.Config{Path: static, CheckFrequency: time.Hour, Load: sources.Loader(config.SourceFile, policy.Policy{}), Log: quiet}),
		file.New(file.Config{
			Name: config.SourceApplied, Path: d.store.Dir(), CheckFrequency: time.Hour, Whole: d.store.Whole(), Load: sources.AppliedLoader(policy.Policy{}), Log: quiet,
		}),
	)
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, d.state.Publish) }()
	d.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
}

// open opens a runtime without pods until the test ends, and returns once that is known.
func (d *daemon) open() {
	d.t.Helper()
	changed, stop := d.state.Subscribe()
	defer stop()
	p := pool.New(runtimetest.NewFake(), pool.Config{NodeName: "machine"})
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	var all errgroup.Group
	all.Go(func() error { return p.Run(ctx) })
	all.Go(func() error { return d.state.Attach(ctx, p, nil) })
	d.t.Cleanup(func() {
		cancel()
		if err := all.Wait(); err != nil {
			d.t.Error(err)
		}
	})
	for _, err := d.state.Pods(); err != nil; _, err = d.state.Pods() {
		<-changed
	}
}

// write carries out a change, which must succeed.
func (d *daemon) write(c kubeapi.Change) []string {
	d.t.Helper()
	warnings, err := d.Write(d.t.Context(), false, func() (kubeapi.Change, error) { return c, nil })
	if err != nil {
		d.t.Fatal(err)
	}
	return warnings
}

// fails carries out a change that must fail, and returns the error.
func (d *daemon) fails(c kubeapi.Change) error {
	d.t.Helper()
	_, err := d.Write(d.t.Context(), false, func() (kubeapi.Change, error) { return c, nil })
	if err == nil {
		d.t.Fatalf("%+v is stored", c)
	}
	return err
}

// desired returns what the watcher has published of an object; nil: nothing.
func (d *daemon) desired(kind, name string) (object any, given *manifests.ServerMetadata) {
	all, _ := d.state.Desired()
	for _, p := range all.Pods {
		if kind == "Pod" && p.Object.Name == name {
			return p.Object, p.Given
		}
	}
	for _, list := range [][]*manifests.Object{all.Objects, all.Workloads} {
		for _, o := range list {
			if o.Kind == kind && o.Object.GetName() == name {
				return o.Object, o.Given
			}
		}
	}
	return nil, nil
}

func put(all ...kinds.Object) kubeapi.Change { return kubeapi.Change{Put: all} }

// ref names an object of the core group, or of the apps group.
func ref(kind, namespace, name string) kubeapi.Ref {
	for _, k := range kinds.All() {
		if k.Kind == kind {
			return kubeapi.Ref{Kind: k, Namespace: namespace, Name: name}
		}
	}
	panic("no kind " + kind)
}

func remove(kind, name string) kubeapi.Change {
	namespace := "default"
	if kind == "Namespace" {
		namespace = ""
	}
	return kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref(kind, namespace, name)}}}
}

func id(kind, name string) manifests.ObjectID {
	return manifests.ObjectID{Kind: kind, Namespace: "default", Name: name}
}

// configMap returns one as a strategy makes it.
func configMap(name, value string) *corev1.ConfigMap {
	o := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("ConfigMap")).New().(*corev1.ConfigMap)
	o.Namespace, o.Name, o.UID, o.Data = "default", name, types.UID("uid-"+name), map[string]string{"a": value}
	return o
}

// podOf returns a pod with what the API server of Kubernetes adds to it.
func podOf(name string) *corev1.Pod {
	o := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod")).New().(*corev1.Pod)
	o.Namespace, o.Name, o.UID, o.Generation = "default", name, types.UID("uid-"+name), 1
	grace, yes, priority, never := int64(30), true, int32(0), corev1.PreemptLowerPriority
	o.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler", TerminationGracePeriodSeconds: &grace,
		SecurityContext: &corev1.PodSecurityContext{}, ServiceAccountName: "default", DeprecatedServiceAccount: "default", EnableServiceLinks: &yes,
		Priority: &priority, PreemptionPolicy: &never, NodeName: "machine",
		Containers: []corev1.Container{{
			Name: "c", Image: "example.com/app:1", ImagePullPolicy: corev1.PullIfNotPresent,
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}},
	}
	o.Status.Phase = corev1.PodRunning
	return o
}

// all returns all objects of a Memory, by kind.
func all(m *OwnObjects) (list []kinds.Object) {
	for _, k := range kinds.All() {
		list = append(list, m.Objects(k)...)
	}
	return list
}
