package apiserver

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
)

// soonest is the shortest time from a failure to another try.
const soonest = time.Second

// ready returns the pods of this machine that are ready.
func (a *Agent) ready() map[types.UID]bool {
	pods, _ := a.cfg.Pods.Pods()
	out := map[types.UID]bool{}
	for _, p := range pods {
		if manifests.IsReady(p) {
			out[p.UID] = true
		}
	}
	return out
}

// rest waits after a failure. It ends early, with woken, once a pod of this machine becomes ready: that may be the API server, or something
// on the way to it.
func (a *Agent) rest(ctx context.Context, d time.Duration, before map[types.UID]bool) (woken bool) {
	changed, cancel := a.cfg.Pods.Subscribe()
	defer cancel()
	end := time.Now().Add(d)
	client.Pause(ctx, min(d, soonest), nil)
	for left := time.Until(end); left > 0 && ctx.Err() == nil; left = time.Until(end) {
		for uid := range a.ready() {
			if !before[uid] {
				return true
			}
		}
		client.Pause(ctx, left, changed)
		client.Pause(ctx, min(settle, time.Until(end)), nil) // changes come in swarms
	}
	return false
}
