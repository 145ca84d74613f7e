package apiserver

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Key names a pod.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Mirror is what is known of a pod there: enough to see whether it is as it should be.
type Mirror struct {
	UID     types.UID
	Version string
	// Hash is of what it was made from, empty when it is no mirror of ours.
	Hash string
	// Other says that it is no mirror pod at all.
	Other bool
	// Owner is the uid of the Node that it belongs to.
	Owner types.UID
	// Leaving says that somebody deletes it.
	Leaving bool
	// Digest is of its status without conditions.
	Digest     string
	Conditions []corev1.PodCondition
}

func mirrorOf(p *corev1.Pod) Mirror {
	_, isMirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	m := Mirror{
		UID: p.UID, Version: p.ResourceVersion, Hash: p.Annotations[annotationContent], Other: !isMirror,
		Leaving: p.DeletionTimestamp != nil, Digest: digest(&p.Status), Conditions: p.Status.Conditions,
	}
	if len(p.OwnerReferences) == 1 {
		m.Owner = p.OwnerReferences[0].UID
	}
	return m
}

// digest is the same for what an API server shows as the same: all of a status but its conditions and what it sets itself.
func digest(s *corev1.PodStatus) string {
	plain := *s
	plain.Conditions, plain.QOSClass = nil, ""
	return hashOf(&plain)
}

// hashOf is of the JSON of a value, in which times are as precise as they are over there.
func hashOf(v any) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(v) // types of the API always encode
	return strconv.FormatUint(h.Sum64(), 36)
}

// store is what the API server has told.
type store struct {
	changed chan struct{} // for reportPods
	noNode  chan struct{} // for reportNode: it is known now, or is gone
	hasNode chan struct{} // for renewLease: there is another one

	mu sync.Mutex
	// listed says that node is what there is, nil: none.
	listed bool
	node   *corev1.Node
	// known says that mirrors are all that there are.
	known   bool
	mirrors map[Key]Mirror
}

func newStore() *store {
	return &store{changed: make(chan struct{}, 1), noNode: make(chan struct{}, 1), hasNode: make(chan struct{}, 1)}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has not looked at the last change yet
	}
}

// seeNode notes what the Node is now; nil: there is none.
func (s *store) seeNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n != nil && s.node != nil && n.UID == s.node.UID && !newer(n.ResourceVersion, s.node.ResourceVersion) {
		return
	}
	was, told := s.nodeUIDLocked(), s.listed
	s.node, s.listed = n, true
	if n == nil || !told {
		poke(s.noNode)
	}
	if s.nodeUIDLocked() != was {
		poke(s.changed)
		poke(s.hasNode)
	}
}

func (s *store) nodeUIDLocked() types.UID {
	if s.node == nil {
		return ""
	}
	return s.node.UID
}

// nodeUID is empty while there is no Node, or nothing is known of it.
func (s *store) nodeUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodeUIDLocked()
}

// theNode returns the Node, nil: there is none; ok says that this is known.
func (s *store) theNode() (n *corev1.Node, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.listed
}

// seePod notes one pod, or with gone that it has been deleted.
func (s *store) seePod(p *corev1.Pod, gone bool) {
	key, m := Key{p.Namespace, p.Name}, mirrorOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return
	}
	was, had := s.mirrors[key]
	switch {
	case had && was.UID == m.UID && !newer(m.Version, was.Version), gone && had && was.UID != m.UID:
		return // it is told late
	case gone:
		delete(s.mirrors, key)
	case had || len(s.mirrors) < maxObjects:
		s.mirrors[key] = m
	}
	poke(s.changed)
}

// forget notes that a pod of that uid is not there any more.
func (s *store) forget(key Key, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrors[key].UID == uid {
		delete(s.mirrors, key)
		poke(s.changed)
	}
}

// pods returns what is there; ok is false while that is not known.
func (s *store) pods() (all map[Key]Mirror, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mirrors), s.known
}

// nodeSink and podSink are the store as feeds see it.
type nodeSink struct {
	*store
	name string
	// listed is the Node of the list that is being read.
	listed *corev1.Node
}

func (s *nodeSink) begin() { s.listed = nil }

func (s *nodeSink) add(o runtime.Object) {
	if n, ok := o.(*corev1.Node); ok && n.Name == s.name {
		s.listed = n
	}
}

func (s *nodeSink) done() { s.seeNode(s.listed) }

func (s *nodeSink) update(o runtime.Object, gone bool) {
	n, ok := o.(*corev1.Node)
	switch {
	case !ok || n.Name != s.name:
	case gone:
		s.seeNode(nil)
	default:
		s.seeNode(n)
	}
}

func (s *nodeSink) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.listed = false
}

type podSink struct {
	*store
	// listed are the pods of the list that is being read.
	listed map[Key]Mirror
}

func (s *podSink) begin() { s.listed = map[Key]Mirror{} }

func (s *podSink) add(o runtime.Object) {
	if p, ok := o.(*corev1.Pod); ok {
		s.listed[Key{p.Namespace, p.Name}] = mirrorOf(p)
	}
}

func (s *podSink) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirrors, s.known, s.listed = s.listed, true, nil
	poke(s.changed)
}

func (s *podSink) update(o runtime.Object, gone bool) {
	if p, ok := o.(*corev1.Pod); ok {
		s.seePod(p, gone)
	}
}

// lost keeps nothing: a server that is another one now has other pods.
func (s *podSink) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirrors, s.known = nil, false
}

// spoil has a pod of that uid made anew.
func (s *store) spoil(key Key, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.mirrors[key]; ok && m.UID == uid {
		m.Hash = ""
		s.mirrors[key] = m
	}
}
