package apiserver

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/mirror"
)

// store is what the API server has told.
type store struct {
	changed chan struct{} // for reportPods
	noNode  chan struct{} // for reportNode: it is known now, or is gone
	hasNode chan struct{} // for renewLease: there is another one
	bound   chan struct{} // for gatherBound: pods that are bound here are others
	// whole: pods that are no mirrors are stored, too.
	whole bool

	mu sync.Mutex
	// listed reports that node is the present Node; nil: there is none.
	listed bool
	node   *corev1.Node
	// known reports that mirrors is complete.
	known   bool
	mirrors map[manifests.Key]mirror.Mirror
	// pods are those that are no mirrors, if whole; they are not changed. uids are those of all of them that have been there.
	others map[manifests.Key]*corev1.Pod
	uids   map[types.UID]bool
	// graces are the seconds that were asked for with the deletion of those, by uid. It is not changed.
	graces map[types.UID]int64
	// refused are those that do not run here, by uid. They are not changed.
	refused map[types.UID]*Refusal
	// undebugged holds, by pod uid and container name, why ephemeral containers cannot run here. It is immutable.
	undebugged map[types.UID]map[string]string
	// rejected are those that were not admitted here, by uid: why.
	rejected map[types.UID]rejection
	// ends are the last states of bound pods that no longer exist here, by uid. They are not changed.
	ends map[types.UID]*corev1.Pod
}

func newStore(whole bool) *store {
	c := func() chan struct{} { return make(chan struct{}, 1) }
	return &store{changed: c(), noNode: c(), hasNode: c(), bound: c(), whole: whole, uids: map[types.UID]bool{}}
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

// theNode returns the Node, nil if it does not exist; ok reports that this is known.
func (s *store) theNode() (n *corev1.Node, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.listed
}

// seePod notes one pod, or with gone that it has been deleted.
func (s *store) seePod(p *corev1.Pod, gone bool) {
	key, m := manifests.Key{Namespace: p.Namespace, Name: p.Name}, mirror.Of(p)
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
		if s.others[key] != nil { // how it was deleted may be told with its end only
			s.leavesLocked(p)
		}
		s.otherLocked(key, nil)
	case had || len(s.mirrors) < maxObjects:
		s.mirrors[key] = m
		s.otherLocked(key, p)
	}
	poke(s.changed)
}

// otherLocked notes a pod that is no mirror; nil: there is none of that name.
func (s *store) otherLocked(key manifests.Key, p *corev1.Pod) {
	was := s.others[key]
	if !s.whole || p == nil && was == nil {
		return
	}
	if p != nil {
		s.leavesLocked(p)
	}
	if p == nil || !s.mirrors[key].Other {
		delete(s.others, key)
	} else {
		p.ManagedFields = nil
		s.others[key] = p
		s.uidLocked(p.UID)
	}
	now := s.others[key]
	if was == nil || now == nil || was.UID != now.UID || !equality.Semantic.DeepEqual(was.Spec, now.Spec) || !maps.Equal(was.Labels, now.Labels) ||
		!maps.Equal(was.Annotations, now.Annotations) || (was.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) || mirror.Finished(&was.Status) != mirror.Finished(&now.Status) ||
		!slices.Equal(manifests.GateConditions(was), manifests.GateConditions(now)) {
		poke(s.bound)
	}
}

// noteBound notes that a pod of this machine is one that the server has bound to it, although the server may have forgotten it.
func (s *store) noteBound(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uidLocked(uid)
}

// end notes the last that is known of a bound pod.
func (s *store) end(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uidLocked(p.UID)
	if s.ends == nil || len(s.ends) >= maxObjects {
		s.ends = map[types.UID]*corev1.Pod{}
	}
	s.ends[p.UID] = p
	poke(s.changed)
}

// lastOf returns the last that is known of pods that are gone here, and forgets those that are gone there as well.
func (s *store) lastOf(there map[manifests.Key]*corev1.Pod) map[types.UID]*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ends) == 0 {
		return nil
	}
	out := map[types.UID]*corev1.Pod{}
	for _, p := range there {
		if last := s.ends[p.UID]; last != nil {
			out[p.UID] = last
		}
	}
	if s.known {
		s.ends = maps.Clone(out)
	}
	return out
}

// reject notes that a pod was not admitted here.
func (s *store) reject(uid types.UID, why rejection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.rejected[uid]; ok {
		return
	}
	if s.rejected == nil || len(s.rejected) >= maxObjects {
		s.rejected = map[types.UID]rejection{}
	}
	s.rejected[uid] = why
	poke(s.bound)
}

// rejections returns those that were not admitted, and forgets those that are gone there, and those that run nevertheless.
func (s *store) rejections(there map[manifests.Key]*corev1.Pod, runs map[types.UID]bool) map[types.UID]rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.UID]rejection{}
	for _, p := range there {
		if why, ok := s.rejected[p.UID]; ok && !runs[p.UID] {
			out[p.UID] = why
		}
	}
	s.rejected = maps.Clone(out)
	return out
}

func (s *store) uidLocked(uid types.UID) {
	if len(s.uids) >= 2*maxObjects {
		clear(s.uids)
	}
	s.uids[uid] = true
}

// leavesLocked notes how long a pod that is deleted may take.
func (s *store) leavesLocked(p *corev1.Pod) {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return
	}
	seconds := *p.DeletionGracePeriodSeconds
	if was, ok := s.graces[p.UID]; ok && was == seconds {
		return
	}
	all := maps.Clone(s.graces)
	if all == nil || len(all) >= 2*maxObjects {
		all = map[types.UID]int64{}
	}
	all[p.UID] = seconds
	s.graces = all
	poke(s.bound)
}

// leaving returns how many seconds those have that have been deleted, by uid, and forgets those that are not there, nor here.
func (s *store) leaving(here map[types.UID]bool) map[types.UID]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[types.UID]bool, len(s.others))
	for _, p := range s.others {
		there[p.UID] = true
	}
	all := maps.Clone(s.graces)
	maps.DeleteFunc(all, func(uid types.UID, _ int64) bool { return !here[uid] && !there[uid] })
	s.graces = all
	return all
}

// boundPods returns the pods that are no mirrors; ok is false while they are not known.
func (s *store) boundPods() (all map[manifests.Key]*corev1.Pod, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.others), s.known
}

// knows reports whether the pods on the server are known.
func (s *store) knows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// hasOther reports whether a pod of that name is no mirror.
func (s *store) hasOther(key manifests.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others[key] != nil
}

// isBound reports whether the API server binds, or bound, a pod of that uid to this node.
func (s *store) isBound(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uids[uid]
}

// forget records that a pod of that uid has gone.
func (s *store) forget(key manifests.Key, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrors[key].UID == uid {
		delete(s.mirrors, key)
		s.otherLocked(key, nil)
		poke(s.changed)
	}
}

// pods returns the pods on the server; ok is false while they are not known.
func (s *store) pods() (all map[manifests.Key]mirror.Mirror, ok bool) {
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
	listed map[manifests.Key]mirror.Mirror
	others map[manifests.Key]*corev1.Pod
}

func (s *podSink) begin() {
	s.listed, s.others = map[manifests.Key]mirror.Mirror{}, map[manifests.Key]*corev1.Pod{}
}

func (s *podSink) add(o runtime.Object) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	key := manifests.Key{Namespace: p.Namespace, Name: p.Name}
	s.listed[key] = mirror.Of(p)
	if s.whole && s.listed[key].Other {
		whole := p.DeepCopy() // the list that it is part of is not kept
		whole.ManagedFields = nil
		s.others[key] = whole
	}
}

func (s *podSink) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirrors, s.store.others, s.known = s.listed, s.others, true
	s.listed, s.others = nil, nil
	for _, p := range s.store.others {
		s.uidLocked(p.UID)
		s.leavesLocked(p)
	}
	poke(s.changed)
	poke(s.bound)
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
	s.mirrors, s.store.others, s.known = nil, nil, false
	poke(s.bound)
}

// spoil has the mirror of that uid recreated.
func (s *store) spoil(key manifests.Key, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.mirrors[key]; ok && m.UID == uid {
		m.Hash = ""
		s.mirrors[key] = m
	}
}
