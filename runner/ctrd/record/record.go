// Package record owns what survives the agent: the records of sandboxes and containers in containerd, and their index in memory, written
// through. It must not interpret what they say.
//
// There is one record per sandbox in the sandbox store (labels and JSON extensions, no controller and no pause process) and one container record
// per instance (labels).
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/typeurl/v2"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Extensions of a sandbox record: JSON, because labels are limited to 4096 bytes.
const (
	ExtPod     = "monopod.dev/pod"
	ExtOrigin  = "monopod.dev/origin"
	ExtNetwork = "monopod.dev/network"
)

// jsonAny is a JSON value as containerd stores extensions.
type jsonAny struct {
	url   string
	value []byte
}

// GetTypeUrl implements typeurl.Any.
func (a jsonAny) GetTypeUrl() string { return a.url } //nolint:revive // containerd's name

// GetValue implements typeurl.Any.
func (a jsonAny) GetValue() []byte { return a.value }

func toAny(name string, v any) (typeurl.Any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	return jsonAny{url: name, value: b}, nil
}

func fromAny(m map[string]typeurl.Any, name string, v any) error {
	a, ok := m[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(a.GetValue(), v); err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	return nil
}

// NetworkResult is the outcome of CNI ADD. A sandbox without one has none, or was cut off before it was stored.
type NetworkResult struct {
	Ready bool     `json:"ready"`
	IPs   []string `json:"ips,omitempty"`
}

// written is what extOrigin holds: what a pod has beside its manifest.
type written struct {
	manifests.Origin
	Images map[string]string `json:"images,omitempty"`
}

// Sandbox is a sandbox record with its extensions decoded.
type Sandbox struct {
	ID        string
	CreatedAt time.Time
	Labels    SandboxLabels
	Pod       *manifests.Pod
	Network   NetworkResult
	// Apart says that nothing is left of it but the record; kept in memory only.
	Apart bool
}

// Extensions returns the record's extensions.
func (r *Sandbox) Extensions() (map[string]typeurl.Any, error) {
	pod, err1 := toAny(ExtPod, r.Pod.Object)
	origin, err2 := toAny(ExtOrigin, written{r.Pod.Origin, r.Pod.Images})
	net, err3 := toAny(ExtNetwork, r.Network)
	return map[string]typeurl.Any{ExtPod: pod, ExtOrigin: origin, ExtNetwork: net}, errors.Join(err1, err2, err3)
}

// decodeSandbox reads a record of the sandbox store. With an error the record has what could be read.
func decodeSandbox(sb sandbox.Sandbox) (*Sandbox, error) {
	r := &Sandbox{
		ID:        sb.ID,
		CreatedAt: sb.CreatedAt,
		Labels:    *DecodeSandboxLabels(sb.Labels),
		Pod:       &manifests.Pod{Object: &corev1.Pod{}},
	}
	var from written
	err := errors.Join(
		fromAny(sb.Extensions, ExtPod, r.Pod.Object),
		fromAny(sb.Extensions, ExtOrigin, &from),
		fromAny(sb.Extensions, ExtNetwork, &r.Network),
	)
	if err != nil {
		err = fmt.Errorf("sandbox %s: %w", sb.ID, err)
	}
	r.Pod.Origin, r.Pod.Images = from.Origin, from.Images
	return r, err
}

// Container is a container record without its spec.
type Container struct {
	ID        string
	CreatedAt time.Time
	Image     string
	Labels    ContainerLabels
	// LostAt is when its task was found to be gone without any trace; kept in memory only.
	LostAt time.Time
}

// Index is the copy in memory of our records, so that observing a pod does not read those of all others.
// The records in it are immutable: who changes one stores a changed copy.
type Index struct {
	mu sync.Mutex
	// sandboxes by id, removing ones included.
	sandboxes map[string]*Sandbox
	// active maps a pod to its sandbox.
	active     map[manifests.Key]string
	containers map[string]*Container
	byPod      map[manifests.Key][]string
	// generations has the last one given out in this run, by pod; of pods that have containers, or are about to.
	generations map[manifests.Key]int
	// Changed holds a token when a container came or went.
	Changed chan struct{}
	// touched are the ids of records that were stored or dropped since all have begun to be read anew; nil: they are not.
	touched map[string]bool
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	x := &Index{Changed: make(chan struct{}, 1)}
	x.resetLocked()
	return x
}

func (x *Index) resetLocked() {
	x.sandboxes = map[string]*Sandbox{}
	x.active = map[manifests.Key]string{}
	x.containers = map[string]*Container{}
	x.byPod = map[manifests.Key][]string{}
	if x.generations == nil {
		x.generations = map[manifests.Key]int{}
	}
}

// reload begins to read all records anew: what is stored and dropped from now on is newer than what replace will bring.
func (x *Index) reload() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touched = map[string]bool{}
}

// replace puts other records in the place of all but those that have changed since reload.
func (x *Index) replace(sandboxes []*Sandbox, containers []*Container) {
	x.mu.Lock()
	defer x.mu.Unlock()
	touched, s, c := x.touched, x.sandboxes, x.containers
	x.touched = nil
	x.resetLocked()
	for _, rec := range sandboxes {
		if !touched[rec.ID] {
			x.putSandboxLocked(rec)
		}
	}
	for _, rec := range containers {
		if !touched[rec.ID] {
			x.putContainerLocked(rec)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(touched)) {
		if rec := s[id]; rec != nil {
			x.putSandboxLocked(rec)
		}
		if rec := c[id]; rec != nil {
			x.putContainerLocked(rec)
		}
	}
}

// touchLocked notes that a record has changed while all are read.
func (x *Index) touchLocked(id string) {
	if x.touched != nil {
		x.touched[id] = true
	}
}

// PutSandbox stores a sandbox.
func (x *Index) PutSandbox(s *Sandbox) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touchLocked(s.ID)
	x.putSandboxLocked(s)
}

func (x *Index) putSandboxLocked(s *Sandbox) {
	x.sandboxes[s.ID] = s
	key := s.Labels.Key
	switch {
	case s.Labels.State == Active:
		x.active[key] = s.ID
	case x.active[key] == s.ID:
		delete(x.active, key)
		x.forgetLocked(key)
	}
}

// DeleteSandbox drops a sandbox.
func (x *Index) DeleteSandbox(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touchLocked(id)
	s, ok := x.sandboxes[id]
	if !ok {
		return
	}
	delete(x.sandboxes, id)
	if x.active[s.Labels.Key] == id {
		delete(x.active, s.Labels.Key)
		x.forgetLocked(s.Labels.Key)
	}
}

// forgetLocked drops what is kept of a pod, once nothing of it is left.
func (x *Index) forgetLocked(key manifests.Key) {
	if x.active[key] == "" && len(x.byPod[key]) == 0 {
		delete(x.generations, key)
	}
}

// PutContainer stores a container.
func (x *Index) PutContainer(c *Container) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touchLocked(c.ID)
	x.putContainerLocked(c)
}

func (x *Index) putContainerLocked(c *Container) {
	if _, ok := x.containers[c.ID]; !ok {
		x.byPod[c.Labels.Key] = append(x.byPod[c.Labels.Key], c.ID)
		x.wakeLocked()
	}
	x.containers[c.ID] = c
}

// wakeLocked tells who waits for changed.
func (x *Index) wakeLocked() {
	select {
	case x.Changed <- struct{}{}:
	default: // it has not looked since
	}
}

// DeleteContainer drops a container.
func (x *Index) DeleteContainer(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touchLocked(id)
	c, ok := x.containers[id]
	if !ok {
		return
	}
	delete(x.containers, id)
	x.wakeLocked()
	key := c.Labels.Key
	ids := x.byPod[key]
	kept := make([]string, 0, len(ids))
	for _, i := range ids {
		if i != id {
			kept = append(kept, i)
		}
	}
	if len(kept) == 0 {
		delete(x.byPod, key)
		x.forgetLocked(key)
		return
	}
	x.byPod[key] = kept
}

// Sandbox returns the active sandbox of a pod, or nil.
func (x *Index) Sandbox(key manifests.Key) *Sandbox {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sandboxes[x.active[key]]
}

// SandboxByID returns a sandbox in any state, or nil.
func (x *Index) SandboxByID(id string) *Sandbox {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sandboxes[id]
}

// Place returns the sandbox that the next one of a pod without any is made instead of, or nil.
func (x *Index) Place(key manifests.Key) *Sandbox {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.active[key] != "" {
		return nil
	}
	for _, s := range x.sandboxes {
		if s.Labels.Key == key && s.Labels.State == Removing && s.Labels.Remade {
			return s
		}
	}
	return nil
}

// Container returns a container, or nil.
func (x *Index) Container(id string) *Container {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.containers[id]
}

// OfPod returns the containers of a pod in the order they were made.
func (x *Index) OfPod(key manifests.Key) []*Container {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*Container
	for _, id := range x.byPod[key] {
		out = append(out, x.containers[id])
	}
	return out
}

// NextGeneration is one more than that of any container of the pod, those included that are being made.
func (x *Index) NextGeneration(key manifests.Key) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.generations[key]
	for _, id := range x.byPod[key] {
		n = max(n, x.containers[id].Labels.Generation)
	}
	x.generations[key] = n + 1
	return n + 1
}

// OfSandbox returns the containers made in a sandbox.
func (x *Index) OfSandbox(id string) []*Container {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*Container
	for _, c := range x.containers {
		if c.Labels.SandboxID == id {
			out = append(out, c)
		}
	}
	return out
}

// List returns all sandboxes.
func (x *Index) List() []*Sandbox {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]*Sandbox, 0, len(x.sandboxes))
	for _, s := range x.sandboxes {
		out = append(out, s)
	}
	return out
}

// All returns all containers.
func (x *Index) All() []*Container {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]*Container, 0, len(x.containers))
	for _, c := range x.containers {
		out = append(out, c)
	}
	return out
}

// OfUID returns the containers of a pod's uid.
func (x *Index) OfUID(uid string) []*Container {
	var out []*Container
	for _, c := range x.All() {
		if c.Labels.UID == uid {
			out = append(out, c)
		}
	}
	return out
}

// UidInUse says whether another sandbox than the given one has the uid.
func (x *Index) UidInUse(uid, except string) bool {
	for _, s := range x.List() {
		if s.Labels.UID == uid && s.ID != except {
			return true
		}
	}
	return false
}
