package kubeview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/state"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/apiserver"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
	"monopod/runner/workload"
)

// world is a View of a daemon's state, which a runtime may be open for.
type world struct {
	*View
	t     *testing.T
	state *state.Store
	facts apiserver.Facts
	rt    *runtimetest.Fake
	pool  *pool.Pool
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	changes := &state.Changes{}
	w := &world{t: t, rt: runtimetest.NewFake()}
	w.state = state.New(changes, rollout.New(rollout.Config{
		Log: slog.New(slog.DiscardHandler), Notify: changes.Notify, Clock: func() boottime.Moment { return boottime.Moment{Boot: "b", Since: time.Hour} },
	}))
	w.facts.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	w.facts.Addresses = apiserver.NodeAddresses([]string{"192.0.2.1"}, "node")
	cfg := Config{Node: "node", State: w.state, Facts: func() apiserver.Facts { return w.facts }}
	if change != nil {
		change(&cfg)
	}
	w.View = New(cfg)
	return w
}

// open attaches a pool on the runtime in a synctest bubble, until the test ends or the returned function is called.
func (w *world) open() (end func()) {
	w.t.Helper()
	existing, err := w.rt.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.pool = pool.New(w.rt, pool.Config{NodeName: "node"})
	ctx, cancel := context.WithCancel(w.t.Context())
	var all errgroup.Group
	all.Go(func() error { return w.state.Rollouts.Run(ctx) })
	all.Go(func() error { return w.pool.Run(ctx) })
	all.Go(func() error { return w.state.Attach(ctx, w.pool, existing) })
	end = sync.OnceFunc(func() {
		cancel()
		if err := all.Wait(); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(end)
	synctest.Wait()
	return end
}

// desired returns what documents of a source define.
func desired(t *testing.T, source, text string) model.Desired {
	t.Helper()
	c, err := decode.All("/m/app.yaml", []byte(text), decode.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	return model.Desired{Pods: c.Pods, Objects: c.Objects, Workloads: c.Workloads, Order: []string{source}, Reported: map[string]bool{source: true}}
}

// publish makes documents the desired state. The pods of workloads are those that they finally have.
func (w *world) publish(d model.Desired) {
	w.t.Helper()
	w.state.Publish(d)
	if len(d.Workloads) > 0 && w.pool != nil {
		for _, doc := range d.Workloads {
			d.Pods = append(slices.Clone(d.Pods), workload.Final(doc)...)
		}
		w.state.Rollouts.Update(d, w.pool.Update)
	}
}

func (w *world) settle() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

// all returns the objects of a kind.
func (w *world) all(kind string) []kinds.Object {
	w.t.Helper()
	objects, _ := w.Objects(w.t.Context())
	return objects[kindNamed(w.t, kind)]
}

// kindNamed returns a kind by GROUP/VERSION/KIND, or the core group's by its name.
func kindNamed(t *testing.T, name string) *kinds.Kind {
	t.Helper()
	gvk := schema.GroupVersionKind{Version: "v1", Kind: name}
	if i := strings.LastIndex(name, "/"); i >= 0 {
		gv, err := schema.ParseGroupVersion(name[:i])
		if err != nil {
			t.Fatal(err)
		}
		gvk = gv.WithKind(name[i+1:])
	}
	k := kinds.ByKind(gvk)
	if k == nil {
		t.Fatalf("there is no kind %s", name)
	}
	return k
}

// get returns the object of a kind and a name, which may be namespace/name.
func get[T kinds.Object](w *world, kind, name string) T {
	w.t.Helper()
	var zero T
	var others []string
	for _, o := range w.all(kind) {
		key := o.GetName()
		if strings.Contains(name, "/") {
			key = o.GetNamespace() + "/" + key
		}
		if key == name {
			return o.(T)
		}
		others = append(others, key)
	}
	w.t.Fatalf("there is no %s %s, but %v", kind, name, others)
	return zero
}

// bubble runs a test in a synctest bubble, with an open runtime.
func bubble(t *testing.T, change func(*Config), test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, change)
		w.open()
		test(t, w)
	})
}

func podYAML(name, more string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: web}%s}\nspec:\n  containers:\n  - {name: c, image: i, command: [sh, -c, %q], ports: [{name: http, containerPort: 8080}]}\n", name, more, runtimetest.ScriptServe)
}

func applied(d model.Desired) model.Desired {
	for _, p := range d.Pods {
		p.Given = &manifests.ServerMetadata{UID: p.Object.UID, Generation: 3}
	}
	return d
}

const (
	files = config.SourceFile
	api   = config.SourceApplied
)

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}
