// Package record owns what survives the agent: the records of sandboxes and containers in containerd, and the index of them in memory.
// It must not interpret what the records say.
//
// Each sandbox has a record in the sandbox store, without a controller or a pause process, and each container one in the container store.
// Their data is in JSON extensions. Labels hold only what filters, other tools and containerd's garbage collection need.
package record

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// NetworkResult is the result of a network set-up. Without one, the sandbox has no network, or its set-up was interrupted.
type NetworkResult struct {
	Ready bool     `json:"ready"`
	IPs   []string `json:"ips,omitempty"`
}

// Sandbox is a sandbox record with its extensions decoded.
type Sandbox struct {
	ID        string
	CreatedAt time.Time
	Meta      SandboxMeta
	Pod       *manifests.Pod
	Network   NetworkResult
	// Ephemeral are the ephemeral containers that were added. They have their own extension, which sandboxes without ephemeral containers
	// lack, so that damage to it loses only them.
	Ephemeral []corev1.EphemeralContainer
	// Apart is set if only the record of it is left; in memory only.
	Apart bool
}

// Container is a container record without its spec.
type Container struct {
	ID        string
	CreatedAt time.Time
	Image     string
	Meta      ContainerMeta
	// LostAt is when its task was found missing without an exit record; in memory only.
	LostAt time.Time
}

// Index is a copy of the records in memory, so that observing a pod does not read those of all others. The records in it are
// immutable; to change one, store a changed copy.
type Index struct {
	mu sync.Mutex
	// sandboxes by id, removing ones included.
	sandboxes map[string]*Sandbox
	// active maps a pod to its sandbox.
	active     map[manifests.Key]string
	containers map[string]*Container
	byPod      map[manifests.Key][]string
	// generations has the last generation of each pod with containers in this run.
	generations map[manifests.Key]int
	// Changed holds a token after a container was added or deleted.
	Changed chan struct{}
	// touched are the ids of records that changed since reload began; nil: no reload is in progress.
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

// reload starts reading all records again: changes from now on are newer than what replace will bring.
func (x *Index) reload() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touched = map[string]bool{}
}

// replace replaces all records except those that have changed since reload.
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

// touchLocked notes a change during a reload.
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
	key := s.Meta.Key
	switch {
	case s.Meta.State == Active:
		x.active[key] = s.ID
	case x.active[key] == s.ID:
		delete(x.active, key)
		x.forgetLocked(key)
	}
}

// DeleteSandbox deletes a sandbox.
func (x *Index) DeleteSandbox(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touchLocked(id)
	s, ok := x.sandboxes[id]
	if !ok {
		return
	}
	delete(x.sandboxes, id)
	if x.active[s.Meta.Key] == id {
		delete(x.active, s.Meta.Key)
		x.forgetLocked(s.Meta.Key)
	}
}

// forgetLocked deletes the generation of a pod without records.
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
		x.byPod[c.Meta.Key] = append(x.byPod[c.Meta.Key], c.ID)
		x.wakeLocked()
	}
	x.containers[c.ID] = c
}

// wakeLocked signals Changed.
func (x *Index) wakeLocked() {
	select {
	case x.Changed <- struct{}{}:
	default: // a token is pending
	}
}

// DeleteContainer deletes a container.
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
	key := c.Meta.Key
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

// Place returns the removing sandbox whose place the next sandbox of a pod takes, or nil.
func (x *Index) Place(key manifests.Key) *Sandbox {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.active[key] != "" {
		return nil
	}
	for _, s := range x.sandboxes {
		if s.Meta.Key == key && s.Meta.State == Removing && s.Meta.Remade {
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

// OfPod returns the containers of a pod in the order of their creation.
func (x *Index) OfPod(key manifests.Key) []*Container {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*Container
	for _, id := range x.byPod[key] {
		out = append(out, x.containers[id])
	}
	return out
}

// NextGeneration returns one more than any container of the pod has, including those being created.
func (x *Index) NextGeneration(key manifests.Key) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.generations[key]
	for _, id := range x.byPod[key] {
		n = max(n, x.containers[id].Meta.Generation)
	}
	x.generations[key] = n + 1
	return n + 1
}

// OfSandbox returns the containers created in a sandbox.
func (x *Index) OfSandbox(id string) []*Container {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*Container
	for _, c := range x.containers {
		if c.Meta.SandboxID == id {
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
		if c.Meta.UID == uid {
			out = append(out, c)
		}
	}
	return out
}

// UIDInUse reports whether a sandbox other than except has the uid.
func (x *Index) UIDInUse(uid, except string) bool {
	for _, s := range x.List() {
		if s.Meta.UID == uid && s.ID != except {
			return true
		}
	}
	return false
}
