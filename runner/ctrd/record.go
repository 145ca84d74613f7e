package ctrd

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
	extPod     = "monopod.dev/pod"
	extOrigin  = "monopod.dev/origin"
	extNetwork = "monopod.dev/network"
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

// networkResult is the outcome of CNI ADD. A sandbox without one has none, or was cut off before it was stored.
type networkResult struct {
	Ready bool     `json:"ready"`
	IPs   []string `json:"ips,omitempty"`
}

// written is what extOrigin holds: what a pod has beside its manifest.
type written struct {
	manifests.Origin
	Images map[string]string `json:"images,omitempty"`
}

// sandboxRecord is a sandbox record with its extensions decoded.
type sandboxRecord struct {
	ID        string
	CreatedAt time.Time
	Labels    sandboxLabels
	Pod       *manifests.Pod
	Network   networkResult
	// Apart says that nothing is left of it but the record; kept in memory only.
	Apart bool
}

// extensions returns the record's extensions.
func (r *sandboxRecord) extensions() (map[string]typeurl.Any, error) {
	pod, err1 := toAny(extPod, r.Pod.Object)
	origin, err2 := toAny(extOrigin, written{r.Pod.Origin, r.Pod.Images})
	net, err3 := toAny(extNetwork, r.Network)
	return map[string]typeurl.Any{extPod: pod, extOrigin: origin, extNetwork: net}, errors.Join(err1, err2, err3)
}

// decodeSandbox reads a record of the sandbox store. With an error the record has what could be read.
func decodeSandbox(sb sandbox.Sandbox) (*sandboxRecord, error) {
	r := &sandboxRecord{
		ID:        sb.ID,
		CreatedAt: sb.CreatedAt,
		Labels:    *decodeSandboxLabels(sb.Labels),
		Pod:       &manifests.Pod{Object: &corev1.Pod{}},
	}
	var from written
	err := errors.Join(
		fromAny(sb.Extensions, extPod, r.Pod.Object),
		fromAny(sb.Extensions, extOrigin, &from),
		fromAny(sb.Extensions, extNetwork, &r.Network),
	)
	if err != nil {
		err = fmt.Errorf("sandbox %s: %w", sb.ID, err)
	}
	r.Pod.Origin, r.Pod.Images = from.Origin, from.Images
	return r, err
}

// containerRecord is a container record without its spec.
type containerRecord struct {
	ID        string
	CreatedAt time.Time
	Image     string
	Labels    containerLabels
	// LostAt is when its task was found to be gone without any trace; kept in memory only.
	LostAt time.Time
}

// index is the copy in memory of our records, so that observing a pod does not read those of all others.
// The records in it are immutable: who changes one stores a changed copy.
type index struct {
	mu sync.Mutex
	// sandboxes by id, removing ones included.
	sandboxes map[string]*sandboxRecord
	// active maps a pod to its sandbox.
	active     map[manifests.Key]string
	containers map[string]*containerRecord
	byPod      map[manifests.Key][]string
	// generations has the last one given out in this run, by pod; of pods that have containers, or are about to.
	generations map[manifests.Key]int
	// changed holds a token when a container came or went.
	changed chan struct{}
	// touched are the ids of records that were stored or dropped since all have begun to be read anew; nil: they are not.
	touched map[string]bool
}

func newIndex() *index {
	x := &index{changed: make(chan struct{}, 1)}
	x.resetLocked()
	return x
}

func (x *index) resetLocked() {
	x.sandboxes = map[string]*sandboxRecord{}
	x.active = map[manifests.Key]string{}
	x.containers = map[string]*containerRecord{}
	x.byPod = map[manifests.Key][]string{}
	if x.generations == nil {
		x.generations = map[manifests.Key]int{}
	}
}

// reload begins to read all records anew: what is stored and dropped from now on is newer than what replace will bring.
func (x *index) reload() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touched = map[string]bool{}
}

// replace puts other records in the place of all but those that have changed since reload.
func (x *index) replace(sandboxes []*sandboxRecord, containers []*containerRecord) {
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
func (x *index) touchLocked(id string) {
	if x.touched != nil {
		x.touched[id] = true
	}
}

func (x *index) putSandbox(s *sandboxRecord) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touchLocked(s.ID)
	x.putSandboxLocked(s)
}

func (x *index) putSandboxLocked(s *sandboxRecord) {
	x.sandboxes[s.ID] = s
	key := s.Labels.Key
	switch {
	case s.Labels.State == sandboxActive:
		x.active[key] = s.ID
	case x.active[key] == s.ID:
		delete(x.active, key)
		x.forgetLocked(key)
	}
}

func (x *index) deleteSandbox(id string) {
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
func (x *index) forgetLocked(key manifests.Key) {
	if x.active[key] == "" && len(x.byPod[key]) == 0 {
		delete(x.generations, key)
	}
}

func (x *index) putContainer(c *containerRecord) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.touchLocked(c.ID)
	x.putContainerLocked(c)
}

func (x *index) putContainerLocked(c *containerRecord) {
	if _, ok := x.containers[c.ID]; !ok {
		x.byPod[c.Labels.Key] = append(x.byPod[c.Labels.Key], c.ID)
		x.wakeLocked()
	}
	x.containers[c.ID] = c
}

// wakeLocked tells who waits for changed.
func (x *index) wakeLocked() {
	select {
	case x.changed <- struct{}{}:
	default: // it has not looked since
	}
}

func (x *index) deleteContainer(id string) {
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

// sandbox returns the active sandbox of a pod, or nil.
func (x *index) sandbox(key manifests.Key) *sandboxRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sandboxes[x.active[key]]
}

// sandboxByID returns a sandbox in any state, or nil.
func (x *index) sandboxByID(id string) *sandboxRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sandboxes[id]
}

// place returns the sandbox that the next one of a pod without any is made instead of, or nil.
func (x *index) place(key manifests.Key) *sandboxRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.active[key] != "" {
		return nil
	}
	for _, s := range x.sandboxes {
		if s.Labels.Key == key && s.Labels.State == sandboxRemoving && s.Labels.Remade {
			return s
		}
	}
	return nil
}

// container returns a container, or nil.
func (x *index) container(id string) *containerRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.containers[id]
}

// ofPod returns the containers of a pod in the order they were made.
func (x *index) ofPod(key manifests.Key) []*containerRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*containerRecord
	for _, id := range x.byPod[key] {
		out = append(out, x.containers[id])
	}
	return out
}

// nextGeneration is one more than that of any container of the pod, those included that are being made.
func (x *index) nextGeneration(key manifests.Key) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.generations[key]
	for _, id := range x.byPod[key] {
		n = max(n, x.containers[id].Labels.Generation)
	}
	x.generations[key] = n + 1
	return n + 1
}

// ofSandbox returns the containers made in a sandbox.
func (x *index) ofSandbox(id string) []*containerRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*containerRecord
	for _, c := range x.containers {
		if c.Labels.SandboxID == id {
			out = append(out, c)
		}
	}
	return out
}

// list returns all sandboxes.
func (x *index) list() []*sandboxRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]*sandboxRecord, 0, len(x.sandboxes))
	for _, s := range x.sandboxes {
		out = append(out, s)
	}
	return out
}

// all returns all containers.
func (x *index) all() []*containerRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]*containerRecord, 0, len(x.containers))
	for _, c := range x.containers {
		out = append(out, c)
	}
	return out
}

// ofUID returns the containers of a pod's uid.
func (x *index) ofUID(uid string) []*containerRecord {
	var out []*containerRecord
	for _, c := range x.all() {
		if c.Labels.UID == uid {
			out = append(out, c)
		}
	}
	return out
}

// uidInUse says whether another sandbox than the given one has the uid.
func (x *index) uidInUse(uid, except string) bool {
	for _, s := range x.list() {
		if s.Labels.UID == uid && s.ID != except {
			return true
		}
	}
	return false
}
