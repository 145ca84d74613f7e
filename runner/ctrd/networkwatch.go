package ctrd

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner/ctrd/network"
)

// Reasons of events about the pod network; a kubelet has none.
const (
	EventNetworkDamaged  = "NetworkDamaged"
	EventNetworkRepaired = "NetworkRepaired"
)

// adoptNetworks hands the pods of an earlier run to the network, which claims their host ports, watches their links and
// repairs them. What cannot be claimed or read is no reason not to start.
func (r *Runtime) adoptNetworks() {
	var pods []network.Pod
	for _, rec := range r.index.list() {
		if rec.Labels.State == sandboxActive && rec.Labels.BootID == r.bootID && rec.Network.Ready {
			pods = append(pods, r.networkPod(rec))
		}
	}
	if err := r.net.Adopt(pods); err != nil {
		r.log.Warn("take over the networks of pods", "err", err)
	}
}

// claimHostPorts claims the ports of a pod on the host's network. One without any namespace of its own cannot show that
// it still exists, and claims nothing.
func (r *Runtime) claimHostPorts(rec *sandboxRecord) error {
	if pod := rec.Pod.Object; !pod.Spec.HostNetwork || !namespacesOf(pod).IPC {
		return nil
	}
	return networkError(r.net.ClaimHost(r.networkPod(rec)))
}

// networkNotice records damage of the network, for all pods that are concerned: of what was repaired for all of them at
// once, the node's event is enough.
func (r *Runtime) networkNotice(n network.Notice) {
	if r.cfg.Events == nil {
		return
	}
	kind, reason, text := corev1.EventTypeNormal, EventNetworkRepaired, "the pod network was damaged and has been repaired: "+n.Damage
	if n.Err != nil {
		kind, reason, text = corev1.EventTypeWarning, EventNetworkDamaged, fmt.Sprintf("the pod network is damaged: %s: %v", n.Damage, n.Err)
	}
	if n.Sandbox == "" {
		r.cfg.Events.Event(r.nodeRef(), kind, reason, text)
	}
	for _, rec := range r.index.list() {
		if rec.Labels.State == sandboxActive && !rec.Pod.Object.Spec.HostNetwork && (n.Sandbox == "" || n.Sandbox == rec.ID) {
			r.cfg.Events.Event(podRef(rec.Labels.Key, rec.Labels.UID), kind, reason, text)
			r.watch.notify(rec.Labels.Key)
		}
	}
}

func podRef(key manifests.Key, uid string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid)}
}
