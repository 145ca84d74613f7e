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

	"monopod/node/apiserver/client"
)

// lease renews the Lease, which shows that this machine is alive.
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
func (a *Agent) renewLease(ctx context.Context, c *client.Client) error {
	w := a.waits()
	w.Last = min(w.Last, a.cfg.LeaseDuration/4)
	version := ""
	for ctx.Err() == nil {
		uid := a.store.nodeUID()
		if uid == "" { // it belongs to the Node
			client.Pause(ctx, a.cfg.LeaseDuration/4, a.store.hasNode)
			continue
		}
		var err error
		if version, err = a.leaseOnce(ctx, c, uid, version); err == nil {
			w.Reset()
			client.Pause(ctx, a.cfg.LeaseDuration/4, nil)
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if e := client.Fatal(err); e != nil {
			return e
		}
		if w.News(err) {
			a.log.Warn("cannot renew the lease; retrying", "err", err)
		}
		client.Pause(ctx, w.Next(), nil)
	}
	return nil
}

// leaseOnce renews the Lease given its last known version, or finds or creates it. It returns the new version, which is empty after an
// error.
func (a *Agent) leaseOnce(ctx context.Context, c *client.Client, uid types.UID, version string) (string, error) {
	got := &coordinationv1.Lease{}
	l := lease(a.cfg.NodeName, uid, a.cfg.LeaseDuration, time.Now())
	to := client.Request{API: client.CoordinationAPI, Namespace: corev1.NamespaceNodeLease, Resource: "leases", Name: a.cfg.NodeName, Into: got}
	if version == "" {
		if err := c.Do(ctx, to.With(http.MethodGet, nil)); err != nil && !client.IsNotFound(err) {
			return "", err
		}
		version = got.ResourceVersion
	}
	r := to.With(http.MethodPut, l)
	if version == "" {
		r.Method, r.Name = http.MethodPost, ""
	}
	l.ResourceVersion = version
	if err := c.Do(ctx, r); err != nil {
		return "", err
	}
	return got.ResourceVersion, nil
}
