package run

import (
	"fmt"
	"path/filepath"
)

// writeKubeconfig writes the kubeconfig of a run with a Kubernetes API.
func (g *stage) writeKubeconfig(o *trialFlags) error {
	text, err := g.daemon.Kubeconfig()
	if err == nil {
		err = g.slot.writeFile(kubeconfigFile, text)
	}
	if err != nil {
		return fmt.Errorf("kubeconfig of run %d: %w", g.slot.number, err)
	}
	g.kubeconfig = filepath.Join(g.slot.Root, kubeconfigFile)
	if o.grace >= 0 {
		g.shorten = o.graceSeconds()
	}
	return nil
}

// serves reports whether the Kubernetes API of the run, if any, has become ready.
func (g *stage) serves() bool {
	g.served = g.served || g.kubeconfig == "" || g.daemon.Serves()
	return g.served
}

// allowAll extends the removal timeout to the grace periods of pods that API clients created, or shortens these.
func (g *stage) allowAll() {
	if g.kubeconfig == "" {
		return
	}
	pods, _ := g.daemon.State.Pods() // without them there is nothing to wait for, or the removal reports why
	for _, v := range pods {
		spec := &v.Pod.Spec
		if t := spec.TerminationGracePeriodSeconds; g.shorten != nil && (t == nil || *t > *g.shorten) {
			g.daemon.State.Bound.SetGracePeriod(v.Pod.UID, g.shorten)
			continue
		}
		g.allow(spec)
	}
}
