package main

import (
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/node"
	"monopod/node/apiserver"
)

// Reasons of events about the API server.
const (
	eventAPIServerLost  = "APIServerUnreachable"
	eventAPIServerFound = "APIServerReachable"
	eventNotMirrored    = "FailedMirrorPod"
)

// report reports to the API server until ctx ends.
func (a *App) report(ctx context.Context) error {
	facts := newNodeFacts(a)
	return apiserver.New(apiserver.Config{
		NodeName: a.cfg.NodeName, Kubeconfig: a.cfg.Kubeconfig, Bootstrap: a.cfg.BootstrapKubeconfig, CertDir: a.cfg.CertDirectory,
		Rotate: a.cfg.RotateCertificates, ServerTLS: a.cfg.ServerTLSBootstrap, Register: a.cfg.RegisterNode,
		Labels: a.cfg.NodeLabels, Taints: nodeTaints(a.cfg.RegisterWithTaints),
		LeaseDuration: time.Duration(a.cfg.NodeLeaseDurationSeconds) * time.Second,
		StatusEvery:   a.cfg.NodeStatusReportFrequency, CheckEvery: a.cfg.NodeStatusUpdateFrequency,
		EventQPS: a.cfg.EventRecordQPS, EventBurst: a.cfg.EventBurst,
		Pods: mirrored{a.board}, Events: a.events, Facts: facts.now, Log: a.log, Tell: a.reported, Version: version(),
	}).Run(ctx)
}

func nodeTaints(written []string) []corev1.Taint {
	var out []corev1.Taint
	for _, text := range written {
		if t, err := parseTaint(text); err == nil { // it was checked
			out = append(out, t)
		}
	}
	return out
}

// reported hears what keeps a pod, or this machine, from being shown by the API server, or that nothing does any more.
func (a *App) reported(key apiserver.Key, trouble error) {
	switch about := podRef(manifests.Key(key)); {
	case key == apiserver.Key{} && trouble != nil:
		a.tell(corev1.EventTypeWarning, eventAPIServerLost, "this machine is not reported to the API server: "+trouble.Error())
	case key == apiserver.Key{}:
		a.tell(corev1.EventTypeNormal, eventAPIServerFound, "this machine is reported to the API server")
	case trouble != nil:
		a.events.Event(about, corev1.EventTypeWarning, eventNotMirrored, "the API server does not show it: "+trouble.Error())
	}
}

// mirrored are the pods as the API server is told of them.
type mirrored struct{ *board }

// Pods implements apiserver.Pods: those that have been looked at.
func (m mirrored) Pods() (pods []*corev1.Pod, complete bool) {
	views, err := m.board.Pods()
	if err != nil {
		return nil, false
	}
	complete = true
	for i := range views {
		if views[i].Why == notLookedAt {
			complete = false
			continue
		}
		pods = append(pods, views[i].Pod)
	}
	return pods, complete
}

// sight says why no pods can be seen; nil: they can.
func (b *board) sight() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pool != nil && b.published:
		return nil
	case b.trouble == nil:
		return node.ErrStarting
	}
	return b.trouble
}

// nodeFacts is what the Node's status is made of.
type nodeFacts struct {
	app  *App
	info func() corev1.NodeSystemInfo
}

func newNodeFacts(a *App) *nodeFacts {
	return &nodeFacts{app: a, info: sync.OnceValue(func() corev1.NodeSystemInfo { return apiserver.SystemInfo(version(), containerdVersion()) })}
}

// containerdVersion is that of the module.
func containerdVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/containerd/containerd/v2" {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// now reads what changes.
func (f *nodeFacts) now() apiserver.Facts {
	cfg := f.app.cfg
	ips, err := f.app.machine.addresses()
	if err != nil {
		f.app.log.Debug("the node has no address", "err", err)
	}
	facts := apiserver.Facts{Addresses: apiserver.NodeAddresses(ips, cfg.NodeName), Info: f.info(), Conditions: []corev1.NodeCondition{f.ready()}, Port: int32(cfg.Port)}
	if r := f.app.resources; r != nil {
		facts.Capacity, facts.Allocatable = r.Capacity(), r.Allocatable()
	}
	return facts
}

// ready is the condition that counts for schedulers.
func (f *nodeFacts) ready() corev1.NodeCondition {
	if err := f.app.board.sight(); err != nil {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: err.Error()}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "monopod is posting ready status"}
}
