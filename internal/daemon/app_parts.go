package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/board"
	"monopod/internal/daemon/counters"
	"monopod/internal/daemon/imagegc"
	"monopod/internal/daemon/whyfacts"
	"monopod/internal/host"
	"monopod/internal/logfile"
	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/internal/version"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/admission"
	"monopod/node/apiserver"
	"monopod/node/apiserver/mirror"
	"monopod/node/drain"
	"monopod/node/localclient"
	"monopod/node/oom"
	"monopod/node/pressure"
	"monopod/node/shutdown"
	"monopod/node/systemd"
	"monopod/node/tracing"
	"monopod/node/why"
	"monopod/runner"
	"monopod/runner/pool"
	"monopod/runner/spec"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// newReporter returns what reports to the API server; nil: there is none.
func (a *App) newReporter() *apiserver.Agent {
	if a.cfg.Kubeconfig == "" || a.Only != nil {
		return nil
	}
	facts := newNodeFacts(a)
	a.news = make(chan struct{}, 1)
	return apiserver.New(apiserver.Config{
		NodeName: a.cfg.NodeName, Kubeconfig: a.cfg.Kubeconfig, Bootstrap: a.cfg.BootstrapKubeconfig, CertDir: a.cfg.CertDirectory,
		Rotate: a.cfg.RotateCertificates, ServerTLS: a.cfg.ServerTLSBootstrap, Register: a.cfg.RegisterNode, Source: a.cfg.APIServerPods,
		Labels: a.cfg.NodeLabels, Taints: nodeTaints(a.cfg.RegisterWithTaints), Platform: host.Platform(),
		LeaseDuration: time.Duration(a.cfg.NodeLeaseDurationSeconds) * time.Second,
		StatusEvery:   a.cfg.NodeStatusReportFrequency, CheckEvery: a.cfg.NodeStatusUpdateFrequency,
		EventQPS: a.cfg.EventRecordQPS, EventBurst: a.cfg.EventBurst,
		Pods: mirrored{a.Board}, Events: a.events, Facts: facts.now, Changed: a.news, Log: a.Log, Tell: a.reported, Version: version.String(),
		Check: a.runnable, Leaving: a.Board.Leave, Refused: a.refused, Conditions: a.Board.Given,
	})
}

// reported hears what keeps a pod, or this machine, from being shown by the API server, or that nothing does any more.
func (a *App) reported(key manifests.Key, trouble error) {
	a.hidden.Note(manifests.Key(key), trouble)
	switch about := podRef(manifests.Key(key)); {
	case key == manifests.Key{} && trouble != nil:
		a.tell(corev1.EventTypeWarning, eventAPIServerLost, "this machine is not reported to the API server: "+trouble.Error())
	case key == manifests.Key{}:
		a.tell(corev1.EventTypeNormal, eventAPIServerFound, "this machine is reported to the API server")
	case trouble != nil:
		a.events.Event(about, corev1.EventTypeWarning, eventNotMirrored, "the API server does not show it: "+trouble.Error())
	}
}

// pressures are the conditions besides Ready. A kubelet that watches nothing has them, too: it is never short of anything.
func (a *App) pressures() []corev1.NodeCondition {
	if a.strain != nil {
		return a.strain.conditions()
	}
	return pressure.Unwatched()
}

// tellNode has the Node brought up to date now, and not some seconds later.
func (a *App) tellNode() {
	select {
	case a.news <- struct{}{}:
	default: // it is to be already, or there is no API server
	}
}

// alias finds the pod that the API server knows by a name; nil where there is no API server.
func (a *App) alias() func(string) (string, bool) {
	if a.reporter == nil {
		return nil
	}
	return func(name string) (string, bool) { return mirror.LocalName(name, a.cfg.NodeName) }
}

// boundPods returns the source of the pods that the API server binds to this node.
func (a *App) boundPods() watcher.Source {
	return fetch.NewRemote(fetch.RemoteConfig{
		Name: config.SourceAPIServer, Input: "API server, node " + a.cfg.NodeName, Place: a.cfg.Kubeconfig + "\n" + a.cfg.NodeName,
		Fetcher: bound{func() *apiserver.Agent { return a.reporter }}, Period: boundAgain,
		Load: withLeftOut(loadParts(config.SourceAPIServer, a.cfg.Policy(""))), Copy: a.cfg.CopyOf(config.SourceAPIServer), Log: a.Log,
	})
}

// runnable says why a pod that is bound to this node cannot run here; nil: it can.
func (a *App) runnable(pod *corev1.Pod) error {
	b, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	_, err = loadParts(config.SourceAPIServer, a.cfg.Policy(""))("", b)
	var why []string
	for _, e := range manifests.Errors(err) {
		if strings.HasPrefix(e.Field, "spec.securityContext.sysctls") {
			return &apiserver.RejectedError{Reason: mirror.ReasonSysctl, Message: strings.TrimPrefix(e.Msg, mirror.ReasonSysctl+": ")}
		}
		text := e.Msg
		if e.Field != "" {
			text = e.Field + ": " + text
		}
		if e.Hint != "" {
			text += "; " + e.Hint
		}
		why = append(why, text)
	}
	if len(why) == 0 {
		return err
	}
	return errors.New(strings.Join(why, "; "))
}

// refused records that a pod that is bound to this node does not run here.
func (a *App) refused(r *apiserver.Refusal) {
	a.Log.Warn("a pod that the API server has bound to this node does not run", "pod", r.Reference().Namespace+"/"+r.Reference().Name, "reason", r.Reason, "why", r.Message)
	a.events.Event(r.Reference(), corev1.EventTypeWarning, r.Reason, r.Message)
}

// notAdmitted has a pod that the API server has bound to this node fail that is held for good: a controller replaces it then. Those of manifests
// wait.
func (a *App) notAdmitted(c pool.Change) {
	held := c.Status.NotAdmitted()
	if a.reporter == nil || c.Gone || held == nil {
		return
	}
	reason, message := held.Reason, held.Message
	if reason == runner.ReasonHostPortConflict {
		reason = mirror.ReasonNodePorts
	}
	a.reporter.Reject(c.Status.Pod, reason, message)
}

// unfit are the pods that are bound to this node and can never run here.
func (a *App) unfit() []why.Unfit {
	if a.reporter == nil {
		return nil
	}
	var all []why.Unfit
	for _, r := range a.reporter.Refusals() {
		if at := r.Reference(); r.Reason != mirror.ReasonNameTaken {
			all = append(all, why.Unfit{Namespace: at.Namespace, Name: at.Name, Text: r.Message})
		}
	}
	slices.SortFunc(all, func(x, y why.Unfit) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// openGate makes the gate.
func (a *App) openGate() error {
	boot, err := boottime.ID()
	if err != nil {
		return err
	}
	a.gate = admission.New(admission.Config{
		Store: drain.NewStore(filepath.Join(a.cfg.RootDirectory, "drain.json"), boot), Marker: shutdown.MarkerIn(a.cfg.RootDirectory, boot),
		Pods: func() ([]drain.Pod, error) { return drainPods(a.Board) }, Subscribe: a.Board.Subscribe, Changed: func() { a.Board.Notify(); a.tellNode() }, Record: a.tell, Log: a.Log,
	})
	if !a.Lent { // nobody drains a run
		a.gate.Load()
	}
	return nil
}

// drainPods returns the pods of a board as admission sees them.
func drainPods(b *board.Board) ([]drain.Pod, error) {
	all, err := b.Statuses()
	pods := make([]drain.Pod, 0, len(all))
	for i := range all {
		priority := manifests.PriorityOf(&manifests.Pod{Object: all[i].Pod}).Value
		pods = append(pods, drain.Pod{Key: all[i].Key(), Priority: priority, Stopped: all[i].Stopped()})
	}
	return pods, err
}

func (a *App) newImages() *imagegc.Images {
	return &imagegc.Images{Policy: a.cfg.GarbagePolicy(), Board: a.Board, Pins: a.pins, Tell: a.tell, Log: a.Log}
}

// watchOOM records the processes that the kernel kills because memory is out, until ctx ends. Without the messages of the kernel, as in
// many containers, containers still say themselves that they ran out of memory, but not with which process.
func (a *App) watchOOM(ctx context.Context, file string) {
	if err := oom.Watch(ctx, file, a.tellOOM); err != nil && ctx.Err() == nil {
		a.Log.Warn("which processes the kernel kills when memory is out is not known", "err", err)
	}
}

// tellOOM records a kill: of a container, with its pod, and when the machine itself was out of memory, with the node in a kubelet's words.
func (a *App) tellOOM(k oom.Kill) {
	if k.Group { // that of the first one has told
		return
	}
	if k.System {
		a.tell(corev1.EventTypeWarning, eventSystemOOM, fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID))
	}
	all, err := a.Board.Statuses()
	if err != nil { // it is nobody's yet
		return
	}
	if ref, message, ok := killedIn(k, all); ok {
		a.events.Event(ref, corev1.EventTypeWarning, eventOOMKilling, message)
	}
}

// newStrain returns nil where nothing is watched.
func (a *App) newStrain() (*strain, error) {
	if a.resources == nil {
		return nil, nil
	}
	cfg, err := a.cfg.Pressure(a.cfg.PodsLimits.Memory > 0)
	if err != nil || len(cfg.Thresholds) == 0 {
		return nil, err
	}
	s := &strain{app: a}
	sensors := &pressure.Kernel{NodeFs: a.cfg.RootDirectory, ImageFs: imageDirectory(&a.cfg.Config)}
	if a.cfg.PodsLimits.Memory > 0 {
		sensors.PodsMemory = memoryOf(spec.Cgroups{Root: a.cfg.CgroupRoot, Driver: spec.CgroupDriver(a.cfg.CgroupDriver)}.Class(corev1.PodQOSGuaranteed))
	}
	s.monitor = pressure.New(cfg, sensors, s, a.Log, time.Now)
	return s, nil
}

// alive asks all loops of the agent, by the socket: that has to answer, too. Containers that cannot be seen are no reason to
// start it again.
func (a *App) alive(ctx context.Context) error { return localclient.New(a.cfg.Socket).Live(ctx) }

// statusLine sums the pods up.
func (a *App) statusLine() (line string, ready bool) {
	pods, err := a.Board.Statuses()
	if errors.Is(err, node.ErrStarting) {
		return "starting", false
	}
	if err != nil {
		return "containers cannot be seen: " + printer.OneLine(err.Error()), false
	}
	running, done := 0, 0
	for i := range pods {
		switch pods[i].Pod.Status.Phase {
		case corev1.PodRunning:
			running++
		case corev1.PodSucceeded:
			done++
		}
	}
	line = fmt.Sprintf("%d pods: %d running, %d completed, %d not", len(pods), running, done, len(pods)-running-done)
	switch s := a.gate.Schedule(); {
	case s.ShuttingDown:
		line += "; the machine shuts down"
	case s.Drained:
		line += "; drained"
	case s.Cordoned:
		line += "; cordoned"
	}
	return line, true
}

// NewShutdown returns what stops the pods before the machine goes down.
func (a *App) NewShutdown(h host.Host) *shutdown.Manager {
	return &shutdown.Manager{
		Pods: a.gate, Groups: a.cfg.ShutdownGroups(), Log: a.Log, Record: a.tell, Marker: a.gate.Marker(),
		Connect: h.Connect, HasLogind: h.HasSystemd, AllowDelay: func(d time.Duration) error { return systemd.AllowDelay(d, h.Logind...) },
	}
}

// newTraces returns nil where nothing is to be traced.
func (a *App) newTraces() *counters.Traces {
	if a.cfg.Tracing.Endpoint == "" || a.cfg.Tracing.SamplingRatePerMillion == 0 {
		return nil
	}
	return &counters.Traces{Tracer: tracing.New(tracing.Config{
		Endpoint: a.cfg.Tracing.Endpoint, PerMillion: a.cfg.Tracing.SamplingRatePerMillion, Node: a.cfg.NodeName, Version: version.String(), Log: a.Log,
	})}
}

func (a *App) explainer() *whyfacts.Explainer {
	host := host.This()
	return &whyfacts.Explainer{
		Instance: why.Instance{Config: host.InstanceOf(a.cfg).Config},
		Board:    a.Board, Logs: logfile.New(a.cfg.PodLogsDir), Places: offline.PlacesOf(a.cfg), Now: time.Now, Proc: "/proc", Events: a.events, Images: a.images, Hidden: a.hidden, Unfit: a.unfit,
	}
}
