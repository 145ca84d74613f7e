package kubeview

import (
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/kubeview/computed"
	"monopod/internal/daemon/state"
	"monopod/manifests"
	"monopod/node/apiserver"
	"monopod/node/events"
	"monopod/node/kubeapi/kinds"
	"monopod/node/localapi"
)

// Kept holds the objects that only the API uses: Namespaces, ServiceAccounts, Leases, Events and objects of inert kinds created by clients.
type Kept interface {
	// Objects returns the objects of a kind, with all of their metadata. They are shared and must not be modified. An unchanged object is
	// the same pointer. state.Store announces changes.
	Objects(k *kinds.Kind) []kinds.Object
	// Last returns the labels, annotations and managed fields that were written to a pod after it was deleted; nil if none. They are
	// shared.
	Last(uid types.UID) *metav1.ObjectMeta
}

// Events is the record of events on this machine.
type Events interface {
	List(f events.Filter) []corev1.Event
	Subscribe() (changed <-chan struct{}, cancel func())
}

// Config of a View. Only Node, State and Facts are required: what is nil is not shown.
type Config struct {
	// Node is the name of this machine.
	Node  string
	State *state.Store
	// Facts returns the data for the status of the Node.
	Facts func() apiserver.Facts
	// Labels are the Node's labels in addition to the standard ones, Taints its taints in addition to that of a cordon.
	Labels map[string]string
	Taints []corev1.Taint
	// Matches reports whether pods with a spec select this machine; if nil, all do.
	Matches func(*corev1.PodSpec) bool
	// LeaseDuration is the duration of the Node's Lease; the default is 40 s.
	LeaseDuration time.Duration
	Kept          Kept
	// Services returns the Services with their allocated addresses; it is called once per build.
	Services func() map[manifests.Key]*corev1.Service
	// Claims returns the volumes of bound claims, by the claim's namespace/name; an empty name means the claim's own directory.
	Claims    func() map[string]string
	Events    Events
	Stats     computed.Stats
	Images    computed.Images
	Revisions computed.Revisions
	// Agent returns what monopod uses itself.
	Agent func() localapi.Agent
	// CA returns the CA certificates of the API, as PEM.
	CA func() string
	// APIAddress returns the address of the API's Service and its backend, as IP:PORT; empty if there is none. It may be nil.
	APIAddress func() (service, behind string)
	// ModTime returns when a file was modified; if nil, objects were created when they were first seen.
	ModTime func(path string) (time.Time, bool)
	// Now is time.Now, except in tests.
	Now func() time.Time
}

// FileTime returns when a file was modified.
func FileTime(path string) (time.Time, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}
