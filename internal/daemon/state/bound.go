package state

import (
	"maps"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podUpdater is the part of a pool that takes what an API server says about bound pods.
type podUpdater interface {
	Graces(byUID map[string]time.Duration)
	Conditions(byUID map[string][]corev1.PodCondition)
}

// Bound holds the API server's data about pods bound to this node, and passes it to the current pool. The zero value is ready.
type Bound struct {
	mu sync.Mutex
	// pool is nil while no runtime is open.
	pool podUpdater
	// graces are the grace periods of pods deleted through the API server, by UID.
	graces map[string]time.Duration
	// conditions are those that controllers set for readiness gates, by UID.
	conditions map[string][]corev1.PodCondition
	// ownGraces and ownConditions are the same for pods deleted or changed through the API of this machine.
	ownGraces     map[string]time.Duration
	ownConditions map[string][]corev1.PodCondition
}

// maxOwnGraces bounds the stored grace periods: those of removed pods are useless.
const maxOwnGraces = 1024

// attach makes pool the one to update; nil: there is none.
func (b *Bound) attach(pool podUpdater) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pool = pool
	b.pushGracesLocked()
	b.tellConditionsLocked()
}

func (b *Bound) pushGracesLocked() {
	if b.pool != nil {
		b.pool.Graces(joined(b.graces, b.ownGraces))
	}
}

func (b *Bound) tellConditionsLocked() {
	if b.pool != nil {
		b.pool.Conditions(joined(b.conditions, b.ownConditions))
	}
}

// joined returns the union of two maps. A pool keeps the result, so it must never be modified.
func joined[V any](a, own map[string]V) map[string]V {
	if len(own) == 0 {
		return a
	}
	all := make(map[string]V, len(a)+len(own))
	maps.Copy(all, a)
	maps.Copy(all, own)
	return all
}

// SetGracePeriod sets the grace period in seconds of a pod deleted through the API of this machine; 0 kills it, nil uses the period of its
// manifest.
func (b *Bound) SetGracePeriod(uid types.UID, seconds *int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if seconds == nil {
		delete(b.ownGraces, string(uid))
	} else {
		if b.ownGraces == nil || len(b.ownGraces) >= maxOwnGraces {
			b.ownGraces = map[string]time.Duration{}
		}
		b.ownGraces[string(uid)] = grace(*seconds)
	}
	b.pushGracesLocked()
}

// SetOwnConditions sets the pod conditions written by clients of the API of this machine, by UID.
func (b *Bound) SetOwnConditions(byUID map[types.UID][]corev1.PodCondition) {
	all := byString(byUID)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ownConditions = all
	b.tellConditionsLocked()
}

// OwnConditions returns the conditions of a pod that were written by clients of the API of this machine. They are never modified.
func (b *Bound) OwnConditions(uid types.UID) []corev1.PodCondition {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ownConditions[string(uid)]
}

func grace(seconds int64) time.Duration {
	return time.Duration(max(0, min(seconds, math.MaxInt32))) * time.Second
}

func byString(byUID map[types.UID][]corev1.PodCondition) map[string][]corev1.PodCondition {
	all := make(map[string][]corev1.PodCondition, len(byUID))
	for uid, c := range byUID {
		all[string(uid)] = c
	}
	return all
}

// SetGracePeriods sets the seconds that pods deleted through the API server have to stop, by UID.
func (b *Bound) SetGracePeriods(seconds map[types.UID]int64) {
	graces := make(map[string]time.Duration, len(seconds))
	for uid, s := range seconds {
		graces[string(uid)] = grace(s)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.graces = graces
	b.pushGracesLocked()
}

// SetConditions sets the conditions that controllers have written to bound pods, by UID.
func (b *Bound) SetConditions(byUID map[types.UID][]corev1.PodCondition) {
	all := byString(byUID)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conditions = all
	b.tellConditionsLocked()
}
