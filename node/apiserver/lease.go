package apiserver

import (
	"context"
	"math"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lease is what says that this machine lives.
func lease(node string, uid types.UID, duration time.Duration, now time.Time) *coordinationv1.Lease {
	seconds := int32(math.Ceil(duration.Seconds()))
	renewed := metav1.NewMicroTime(now)
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Name: node, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
}

// renewLease renews the Lease four times in its life.
func (a *Agent) renewLease(ctx context.Context, c *Client) error {
	w := a.waits()
	w.last = min(w.last, a.cfg.LeaseDuration/4)
	version := ""
	for ctx.Err() == nil {
		uid := a.store.nodeUID()
		if uid == "" { // it belongs to the Node
			pause(ctx, a.cfg.LeaseDuration/4, a.store.hasNode)
			continue
		}
		var err error
		if version, err = a.leaseOnce(ctx, c, uid, version); err == nil {
			w.reset()
			pause(ctx, a.cfg.LeaseDuration/4, nil)
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if e := fatal(err); e != nil {
			return e
		}
		if w.news(err) {
			a.log.Warn("the lease is not renewed; trying again", "err", err)
		}
		pause(ctx, w.next(), nil)
	}
	return nil
}

// leaseOnce renews the Lease of which the last version is known, or finds or makes it. It returns its version now, which is
// empty with an error.
func (a *Agent) leaseOnce(ctx context.Context, c *Client, uid types.UID, version string) (string, error) {
	got := &coordinationv1.Lease{}
	l := lease(a.cfg.NodeName, uid, a.cfg.LeaseDuration, time.Now())
	to := request{api: coordinationAPI, namespace: corev1.NamespaceNodeLease, resource: "leases", name: a.cfg.NodeName, into: got}
	if version == "" {
		if err := c.do(ctx, to.with(http.MethodGet, nil)); err != nil && !isNotFound(err) {
			return "", err
		}
		version = got.ResourceVersion
	}
	r := to.with(http.MethodPut, l)
	if version == "" {
		r.method, r.name = http.MethodPost, ""
	}
	l.ResourceVersion = version
	if err := c.do(ctx, r); err != nil {
		return "", err
	}
	return got.ResourceVersion, nil
}
