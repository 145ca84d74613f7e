// Package apiserver reports this machine and its pods to a Kubernetes API server: the Node, its Lease, a mirror pod for each pod, their
// status, and events. It can get client certificates from that server, and authenticates and authorizes requests by it.
//
// It owns what it writes there, and the directory of its certificates here. It must not change anything on this machine, whatever that
// server answers: pods are read through an interface that cannot change them, each concern has at most one request in flight, what has not
// been sent is replaced by the present state, and answers are bounded in size.
//
//	pods  --changed--> mirrors --+
//	facts ----10 s---> node -----+--> Client --> API server
//	10 s ------------> lease ----+                  |
//	events -changed--> events ---+                  |
//	     store <-- list and watch: own node, own pods
//
// Deciding is pure: planNode and mirror.Plan. Goroutines: Agent.Run has one for each concern and waits for all of them.
package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/identity"
	"monopod/node/apiserver/mirror"
	"monopod/node/apiserver/webhook"
	"monopod/node/events"
	"monopod/node/nodemeta"
)

// Pods are those of this machine. What it returns is never changed.
type Pods interface {
	// Pods returns the pods with their current status; complete reports that there are no others.
	Pods() (pods []*corev1.Pod, complete bool)
	// Subscribe returns a channel that gets a value after each change, and a function that ends the subscription.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// Events is the record of what happened here.
type Events interface {
	List(f events.Filter) []corev1.Event
	Subscribe() (changed <-chan struct{}, cancel func())
}

// Facts are what the Node's status is made of.
type Facts struct {
	Addresses             []corev1.NodeAddress
	Capacity, Allocatable corev1.ResourceList
	// Conditions have type, status, reason and message; the order is kept.
	Conditions []corev1.NodeCondition
	Info       corev1.NodeSystemInfo
	Images     []corev1.ContainerImage
	// Unschedulable reports that this machine takes no new pods.
	Unschedulable bool
	// Port is that of the server that answers for logs and exec; 0: there is none.
	Port int32
	// Set is what clients of the API of this machine have set on its Node.
	Set nodemeta.Metadata
}

// Config of an Agent.
type Config struct {
	// NodeName is the name of the Node object.
	NodeName string
	// Kubeconfig is the file that says which server, and who this machine is to it.
	Kubeconfig string
	// Bootstrap, which may be empty, is a kubeconfig with which to ask for a certificate when Kubeconfig does not exist.
	Bootstrap string
	// CertDir is where certificates are kept.
	CertDir string
	// Rotate asks for a new client certificate before the one there is ends.
	Rotate bool
	// ServerTLS asks for a serving certificate.
	ServerTLS bool
	// Register makes the Node object when there is none.
	Register bool
	// Source has the pods that are bound to this node told by Bound, and their status reported to themselves.
	Source bool
	// Services makes the source of bound pods include the Services of the server, if Source is set.
	Services bool
	Labels   map[string]string
	Taints   []corev1.Taint
	// Platform is that of this machine.
	Platform manifests.Platform
	// LeaseDuration is how long others shall believe that this machine lives after it was last heard of. It is renewed four
	// times in it.
	LeaseDuration time.Duration
	// StatusEvery is the interval at which an unchanged status is sent, CheckEvery that of checks for changes.
	StatusEvery, CheckEvery time.Duration
	// EventQPS and EventBurst bound how many events are sent; EventQPS 0: all of them.
	EventQPS, EventBurst int

	Pods Pods
	// Events may be nil: none are sent.
	Events Events
	Facts  func() Facts
	// Changed, which may be nil, gets a value when Facts has changed and has to be sent at once.
	Changed <-chan struct{}
	Log     *slog.Logger
	// Tell, which may be nil, hears what keeps a pod, or with a zero key this machine, from being shown there; nil: nothing.
	Tell func(key manifests.Key, trouble error)
	// Check, which may be nil, returns why this machine can never run a pod that is bound to it; nil: it can. It changes nothing.
	Check func(*corev1.Pod) error
	// Leaving, which may be nil, hears how many seconds bound pods have to stop that are deleted, by uid, before Bound leaves them out.
	Leaving func(map[types.UID]int64)
	// Conditions, which may be nil, hears of the conditions that readiness gates of bound pods look at, by uid.
	Conditions func(map[types.UID][]corev1.PodCondition)
	// Refused, which may be nil, hears of each pod that is bound to this node and does not run here, once.
	Refused func(*Refusal)
	// Debug, which may be nil, adds an ephemeral container to a pod that is bound to this node and runs here, and returns when that is
	// durable. A *RejectedError is permanent; other errors are retried.
	Debug func(context.Context, *corev1.Pod, corev1.EphemeralContainer) error
	// Version is what the client says it is.
	Version string
	// firstWait and lastWait bound the waits after failures; tests have no time.
	firstWait, lastWait time.Duration
}

// Agent reports. All of it is in Run.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	store    *store
	bindings *bindings
	services *services
	// told is the last result of Bound, nil before the first one. It belongs to the caller of Bound.
	told error

	mu sync.Mutex
	// client is that of the session, nil while there is none.
	client *client.Client
	// began is when Run was called; sentUpTo is the revision of the last event that was sent, nil before the first session.
	began    time.Time
	sentUpTo *uint64
}

// New returns an Agent. It does no I/O.
func New(cfg Config) *Agent {
	if cfg.firstWait == 0 {
		cfg.firstWait, cfg.lastWait = time.Second, time.Minute
	}
	if cfg.Tell == nil {
		cfg.Tell = func(manifests.Key, error) {}
	}
	if cfg.Check == nil {
		cfg.Check = func(*corev1.Pod) error { return nil }
	}
	if cfg.Leaving == nil {
		cfg.Leaving = func(map[types.UID]int64) {}
	}
	if cfg.Conditions == nil {
		cfg.Conditions = func(map[types.UID][]corev1.PodCondition) {}
	}
	if cfg.Debug == nil {
		cfg.Debug = func(context.Context, *corev1.Pod, corev1.EphemeralContainer) error {
			return &RejectedError{mirror.ReasonNotSupported, "this machine runs none"}
		}
	}
	if cfg.Refused == nil {
		cfg.Refused = func(*Refusal) {}
	}
	a := &Agent{cfg: cfg, log: cfg.Log.With("concern", "apiserver"), store: newStore(cfg.Source), bindings: newBindings()}
	a.services = &services{changed: a.store.bound}
	return a
}

// Gone records the last status of a pod that has been removed from this machine. It must be called before Config.Pods leaves the pod out.
func (a *Agent) Gone(p *corev1.Pod) {
	if p.Annotations[mirror.AnnotationSource] == mirror.SourceName && a.cfg.Source {
		a.store.end(p)
	}
}

// Reject notes that a pod that the server has bound to this node was not admitted: it has failed, for a controller to replace it.
func (a *Agent) Reject(p *corev1.Pod, reason, message string) {
	if p.Annotations[mirror.AnnotationSource] == mirror.SourceName && a.cfg.Source {
		a.store.reject(p.UID, rejection{reason, message})
	}
}

// Run reports until ctx ends. Whatever fails is tried again; the error is nil.
func (a *Agent) Run(ctx context.Context) error {
	w := a.waits()
	a.began = time.Now()
	for ctx.Err() == nil {
		began, ready := time.Now(), a.ready()
		err := a.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > a.cfg.lastWait || errors.Is(err, identity.ErrRenewed) {
			w.Reset()
		}
		if errors.Is(err, identity.ErrRenewed) {
			continue
		}
		next := w.Next()
		if w.News(err) {
			a.cfg.Tell(manifests.Key{}, err)
			a.log.Warn("cannot report this machine to the API server; retrying", "err", err)
		}
		if a.rest(ctx, next, ready) {
			w.Sooner()
		}
	}
	return nil
}

// session is the time with one kubeconfig.
func (a *Agent) session(ctx context.Context) error {
	id := a.identity()
	if err := id.Join(ctx); err != nil {
		return err
	}
	client, err := client.Open(a.cfg.Kubeconfig, a.cfg.Version, a.log)
	if err != nil {
		return err
	}
	defer client.Close()
	a.setClient(client)
	defer a.setClient(nil)
	(&nodeSink{store: a.store}).lost() // it may be another server
	(&podSink{store: a.store}).lost()
	a.services.lost()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.followNode(ctx, client) })
	g.Go(func() error { return a.followPods(ctx, client) })
	g.Go(func() error { return a.reportNode(ctx, client) })
	g.Go(func() error { return a.renewLease(ctx, client) })
	g.Go(func() error { return a.reportPods(ctx, client) })
	if a.cfg.Source {
		g.Go(func() error { return a.gatherBound(ctx, client) })
	}
	if a.cfg.Source && a.cfg.Services {
		g.Go(func() error { return a.followServices(ctx, client) })
	}
	if a.cfg.Events != nil {
		g.Go(func() error { return a.sendEvents(ctx, client) })
	}
	if a.cfg.Rotate {
		g.Go(func() error { return id.Rotate(ctx, client, id.Client) })
	}
	if a.cfg.ServerTLS {
		g.Go(func() error { return id.Rotate(ctx, client, id.Serving) })
	}
	return g.Wait()
}

func (a *Agent) identity() *identity.Keeper {
	return identity.New(identity.Config{
		NodeName: a.cfg.NodeName, Kubeconfig: a.cfg.Kubeconfig, Bootstrap: a.cfg.Bootstrap, CertDir: a.cfg.CertDir, Version: a.cfg.Version,
		CheckEvery: a.cfg.CheckEvery, Addresses: func() []corev1.NodeAddress { return a.cfg.Facts().Addresses },
		FirstWait: a.cfg.firstWait, LastWait: a.cfg.lastWait, Log: a.log,
	})
}

func (a *Agent) setClient(c *client.Client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = c
}

// Client is that of the session, nil while there is none.
func (a *Agent) Client() *client.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client
}

// Webhook returns a Webhook that uses the server of the current session.
func (a *Agent) Webhook() *webhook.Webhook { return webhook.New(a.cfg.NodeName, a.Client) }

func (a *Agent) waits() *client.Waits { return client.NewWaits(a.cfg.firstWait, a.cfg.lastWait) }

// ShownName returns the name under which the API server has a pod of this machine.
func (a *Agent) ShownName(name, uid string) string {
	if a.store.isBound(types.UID(uid)) {
		return name // it is there itself
	}
	return mirror.Name(name, a.cfg.NodeName)
}
