package apiserver

import (
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

// addWait bounds adding one ephemeral container.
const addWait = 10 * time.Second

// debug adds the ephemeral containers of bound pods that run here. One that can never run is reported once, and again after a restart.
func (g *gatherer) debug(ctx context.Context, pods map[manifests.Key]*corev1.Pod, local []*corev1.Pod) {
	refused := map[types.UID]map[string]string{}
	for _, p := range local {
		there := pods[manifests.Key{Namespace: p.Namespace, Name: p.Name}]
		if there == nil || there.UID != p.UID || p.Annotations[mirror.AnnotationSource] != mirror.SourceName || there.DeletionTimestamp != nil || mirror.Finished(&p.Status) {
			continue
		}
		for i := range there.Spec.EphemeralContainers {
			e := &there.Spec.EphemeralContainers[i]
			if manifests.FindEphemeral(&p.Spec, e.Name) != nil || mirror.DebuggedThere(there, e.Name) {
				continue
			}
			was, again := g.debugged[p.UID][e.Name]
			if !again {
				was = g.add(ctx, there, p, e)
			}
			if was != "" {
				if refused[p.UID] == nil {
					refused[p.UID] = map[string]string{}
				}
				refused[p.UID][e.Name] = was
			}
		}
	}
	g.debugged = refused
	g.store.setUndebugged(refused)
}

// add adds an ephemeral container to a pod, and returns why it can never be added. Other failures are retried soon.
func (g *gatherer) add(ctx context.Context, there, p *corev1.Pod, e *corev1.EphemeralContainer) string {
	if p.Status.StartTime == nil { // its sandbox is being created
		g.soon(time.Now().Add(min(time.Second, g.cfg.lastWait)))
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, addWait)
	defer cancel()
	err := g.cfg.Debug(ctx, p, *e.DeepCopy())
	if never, ok := errors.AsType[*RejectedError](err); ok {
		message := "ephemeral container " + e.Name + ": " + client.Clip(never.Message)
		g.cfg.Refused(&Refusal{Reason: never.Reason, Message: message, pod: there})
		return message
	}
	if err != nil {
		g.log.Debug("add ephemeral container", "pod", p.Namespace+"/"+p.Name, "container", e.Name, "err", err)
		g.soon(time.Now().Add(min(5*time.Second, 10*g.cfg.lastWait)))
	}
	return ""
}

// setUndebugged stores why ephemeral containers cannot run here, by pod and name.
func (s *store) setUndebugged(all map[types.UID]map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.EqualFunc(all, s.undebugged, maps.Equal) {
		poke(s.changed)
	}
	s.undebugged = all
}

// undebuggedOf returns why ephemeral containers of a pod cannot run here, by name.
func (s *store) undebuggedOf(uid types.UID) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.undebugged[uid]
}
