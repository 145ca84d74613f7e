package state

import (
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

// Bound holds what the API server says about pods bound to this node, and passes it to the current pool. The zero value is ready.
type Bound struct {
	mu sync.Mutex
	// pool is nil while no runtime is open.
	pool podUpdater
	// graces are the grace periods of pods deleted through the API server, by UID.
	graces map[string]time.Duration
	// conditions are those that controllers set for readiness gates, by UID.
	conditions map[string][]corev1.PodCondition
}

// attach makes pool the one to update; nil: there is none.
func (b *Bound) attach(pool podUpdater) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pool = pool; pool != nil {
		pool.Graces(b.graces)
		pool.Conditions(b.conditions)
	}
}

// SetGracePeriods sets the seconds that pods deleted through the API server have to stop, by UID.
func (b *Bound) SetGracePeriods(seconds map[types.UID]int64) {
	graces := make(map[string]time.Duration, len(seconds))
	for uid, s := range seconds {
		graces[string(uid)] = time.Duration(min(s, math.MaxInt32)) * time.Second
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.graces = graces
	if b.pool != nil {
		b.pool.Graces(graces)
	}
}

// SetConditions sets the conditions that controllers have written to bound pods, by UID.
func (b *Bound) SetConditions(byUID map[types.UID][]corev1.PodCondition) {
	all := make(map[string][]corev1.PodCondition, len(byUID))
	for uid, c := range byUID {
		all[string(uid)] = c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conditions = all
	if b.pool != nil {
		b.pool.Conditions(all)
	}
}
