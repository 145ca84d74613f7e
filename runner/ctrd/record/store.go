package record

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/idrange"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
)

// Store keeps the records of this instance in containerd, and the index consistent with them.
type Store struct {
	Client *client.Client
	Dirs   layout.Dirs
	Index  *Index
	// IDRanges are the user id ranges of the recorded sandboxes.
	IDRanges idrange.Ranges
	// ShimPath is the runtime in sandbox records.
	ShimPath string
	Log      *slog.Logger

	// locks has one lock for each record.
	locks locks.ByKey
}

// Find returns the container that an action names: by id, else the newest with that name.
func (r *Store) Find(key manifests.Key, a runner.Action) *Container {
	var found *Container
	for _, rec := range r.Index.OfPod(key) {
		if a.ContainerID == rec.ID || (a.ContainerID == "" && a.Container == rec.Meta.Name) {
			found = rec
		}
	}
	return found
}

// UpdateContainer changes a record in containerd, then in the index. What is in labels cannot change.
func (r *Store) UpdateContainer(ctx context.Context, rec *Container, change func(*ContainerMeta)) (*Container, error) {
	next := *rec
	change(&next.Meta)
	ext, err := next.Extensions()
	if err != nil {
		return nil, err
	}
	if _, err := r.Client.ContainerService().Update(ctx, containers.Container{ID: rec.ID, Extensions: ext}, "extensions"); err != nil {
		if errdefs.IsNotFound(err) {
			r.Index.DeleteContainer(rec.ID)
		}
		return nil, err
	}
	r.Index.PutContainer(&next)
	return &next, nil
}

// NewID returns an id in the format of containerd's CRI plug-in.
func NewID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// SpecOf returns the spec of a container, which has a process.
func (r *Store) SpecOf(ctx context.Context, id string) (*specs.Spec, error) {
	stored, err := r.Client.ContainerService().Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("container record: %w", err)
	}
	var s specs.Spec
	if err := typeurl.UnmarshalTo(stored.Spec, &s); err != nil {
		return nil, fmt.Errorf("container spec: %w", err)
	}
	if s.Process == nil {
		return nil, errors.New("container spec has no process")
	}
	return &s, nil
}

// KnownUIDs returns the uids of all recorded pods. A new pod has a record before it has files.
func (x *Index) KnownUIDs() map[string]bool {
	known := map[string]bool{}
	for _, rec := range x.List() {
		known[rec.Meta.UID] = true
	}
	for _, rec := range x.All() {
		known[rec.Meta.UID] = true
	}
	return known
}

// DeleteRecord deletes the record of a container. It is the last step of a removal, so that failed steps are retried.
func (r *Store) DeleteRecord(ctx context.Context, id string) error {
	if err := fault.IgnoreNotFound(r.Client.ContainerService().Delete(ctx, id)); err != nil {
		return fmt.Errorf("delete record of container %s: %w", id, err)
	}
	r.Index.DeleteContainer(id)
	return nil
}

// NoTask is the status of a task that does not exist.
const NoTask task.Status = -1

// StatusOf returns the status of a task; NoTask for nil.
func StatusOf(t *task.Process) task.Status {
	if t == nil {
		return NoTask
	}
	return t.Status
}

// Task returns the task of a container, nil when there is none.
func (r *Store) Task(ctx context.Context, id string) (*task.Process, error) {
	resp, err := r.Client.TaskService().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	if err == nil {
		return resp.Process, nil
	}
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil, nil
	}
	return nil, fmt.Errorf("task: %w", err)
}

// LostAt returns when a container was first found without task and exit record.
func (r *Store) LostAt(rec *Container) time.Time {
	if rec.LostAt.IsZero() {
		lost := *rec
		lost.LostAt = time.Now()
		r.Index.PutContainer(&lost)
		return lost.LostAt
	}
	return rec.LostAt
}

// KnownContainers returns the ids of all containers in the namespace, including those of other clients, except unmade.
func (r *Store) KnownContainers(ctx context.Context, unmade map[string]bool) (map[string]bool, error) {
	all, err := r.Client.ContainerService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	known := map[string]bool{}
	for _, c := range all {
		known[c.ID] = !unmade[c.ID]
	}
	return known, nil
}

// Loaded returns the pod with the overhead of the sandbox, which was that of the RuntimeClass when it was created.
func (s *Sandbox) Loaded(pod *manifests.Pod) *corev1.Pod {
	if len(s.Meta.Overhead) == 0 {
		return pod.Object
	}
	p := *pod.Object // a shallow copy is enough
	p.Spec.Overhead = s.Meta.Overhead
	return &p
}

// OwnFilter matches the records of this instance.
func (r *Store) OwnFilter() string {
	return fmt.Sprintf("labels.%q==%q", LabelOwner, r.Dirs.Root)
}

// StoreSandbox creates a record; an existing one is not an error.
func (r *Store) StoreSandbox(ctx context.Context, rec *Sandbox) error {
	ext, err := rec.Extensions()
	if err != nil {
		return err
	}
	created, err := r.Client.SandboxStore().Create(ctx, sandbox.Sandbox{
		ID:         rec.ID,
		Labels:     rec.Meta.Labels(),
		Extensions: ext,
		Runtime:    sandbox.RuntimeOpts{Name: r.ShimPath},
	})
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create sandbox record: %w", err)
	}
	rec.CreatedAt = created.CreatedAt
	return nil
}

// UpdateSandbox changes a record in containerd, then in the index, and stores the extensions that are named. It may be called
// concurrently, by the worker and by a network set-up. What is in labels cannot change.
func (r *Store) UpdateSandbox(ctx context.Context, id string, change func(*Sandbox), extensions ...string) (*Sandbox, error) {
	defer r.locks.Lock("record " + id)()
	rec := r.Index.SandboxByID(id)
	if rec == nil {
		return nil, fmt.Errorf("sandbox %s: %w", id, errdefs.ErrNotFound)
	}
	next := *rec
	change(&next)
	ext, err := next.Extensions()
	if err != nil {
		return nil, err
	}
	var fields []string
	for _, name := range extensions {
		fields = append(fields, "extensions."+name)
	}
	if _, err := r.Client.SandboxStore().Update(ctx, sandbox.Sandbox{ID: id, Extensions: ext}, fields...); err != nil {
		return nil, fmt.Errorf("update sandbox record: %w", err)
	}
	r.Index.PutSandbox(&next)
	return &next, nil
}

// KeepRecord reports whether the record of a torn-down sandbox must stay for now, and marks it.
func (r *Store) KeepRecord(id string) bool {
	defer r.locks.Lock("record " + id)()
	rec := r.Index.SandboxByID(id)
	if rec == nil || !rec.Meta.Remade || r.Index.Sandbox(rec.Meta.Key) != nil {
		return false
	}
	next := *rec
	next.Apart = true
	r.Index.PutSandbox(&next)
	return true
}

// UIDOf returns the uid of the pod of a sandbox.
func UIDOf(rec *Sandbox) types.UID { return types.UID(rec.Meta.UID) }

// Load reads all our records into the index. Two active sandboxes of one pod are possible only after a crash; the newest stays.
func (r *Store) Load(ctx context.Context, givenUp func(sandbox string) bool) error {
	r.Index.reload()
	sbs, err := r.Client.SandboxStore().List(ctx, r.OwnFilter())
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	ctrs, err := r.Client.ContainerService().List(ctx, r.OwnFilter())
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var sandboxes []*Sandbox
	ranges := map[string]uint32{}
	for _, sb := range sbs {
		rec, err := decodeSandbox(sb)
		if err != nil { // only this pod is affected: it gets a new sandbox
			r.Log.Error("the record of a sandbox is damaged: the sandbox is replaced", "sandbox", sb.ID, "pod", rec.Meta.Key.String(), "err", err)
			rec.Meta.State = Removing
		}
		if err := rec.decodeEphemeral(sb); err != nil {
			r.Log.Error("the record of ephemeral containers is damaged: they are removed", "sandbox", sb.ID, "pod", rec.Meta.Key.String(), "err", err)
		}
		if givenUp(rec.ID) { // it was given up while containerd was unreachable
			rec.Meta.State = Removing
		}
		sandboxes = append(sandboxes, rec)
		ranges[rec.ID] = rec.Meta.FirstID
	}
	if err := r.IDRanges.Keep(ranges); err != nil {
		r.Log.Warn("other monopods may assign the user ids of pods", "err", err)
	}
	var containers []*Container
	for _, c := range ctrs {
		rec, err := decodeContainer(c)
		if err != nil {
			r.Log.Error("the record of a container is damaged: using what can be read", "container", c.ID, "pod", rec.Meta.Key.String(), "err", err)
		}
		containers = append(containers, rec)
	}
	slices.SortFunc(sandboxes, func(a, b *Sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	slices.SortFunc(containers, func(a, b *Container) int {
		return cmp.Or(cmp.Compare(a.Meta.Generation, b.Meta.Generation), a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	r.Index.replace(sandboxes, containers)
	return nil
}
