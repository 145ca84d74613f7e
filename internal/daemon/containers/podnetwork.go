package containers

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"monopod/internal/config"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/hostcni"
)

// KeepNetwork returns the configuration with the directory of the CNI network that running pods use, if none is configured. Such pods were
// connected when the host's configuration was used without being named; without it, pods of before and after an upgrade would be on different
// networks. The default of cniConfDir used to be hostcni.Default.
func KeepNetwork(cfg *config.Loaded, log *slog.Logger) *config.Loaded {
	return keepNetwork(cfg, hostcni.Default, log)
}

func keepNetwork(cfg *config.Loaded, dir string, log *slog.Logger) *config.Loaded {
	if cfg.CNIConfDir != "" || !strings.HasPrefix(cfg.Sources[cniKey], "default") {
		return cfg
	}
	pods, err := hostcni.Attached(cniDataDir(&cfg.Config), network.OwnName)
	if err != nil {
		log.Warn("monopod's own pod network is used", "err", err)
		return cfg
	}
	if pods == 0 {
		return cfg
	}
	// A directory that cannot be read is kept too: setting up pods then fails with its error.
	if found, err := hostcni.Exists(dir); err == nil && !found {
		return cfg
	}
	kept := *cfg
	kept.CNIConfDir = dir
	kept.Sources = maps.Clone(cfg.Sources)
	kept.Sources[cniKey] = "kept: " + usedBy(pods)
	return &kept
}

const cniKey = "cniConfDir"

func usedBy(pods int) string {
	if pods == 1 {
		return "1 pod uses it"
	}
	return fmt.Sprintf("%d pods use it", pods)
}

// Warnings are about what the configuration means on this machine: omitted credential providers, and a network that is only used because of
// KeepNetwork, with the line to write.
func Warnings(cfg *config.Loaded) []string {
	all := cfg.ProviderWarnings()
	_, who, kept := strings.Cut(cfg.Sources[cniKey], "kept: ")
	if !kept {
		return all
	}
	return append(slices.Clone(all), fmt.Sprintf("the CNI network of %s is used only as long as pods are on it (%s): write `cniConfDir: %s` to keep it, or `cniConfDir: \"\"` for monopod's own",
		cfg.CNIConfDir, who, cfg.CNIConfDir))
}

// PodNetwork remembers the network of new pods. It is safe for concurrent use.
type PodNetwork struct {
	// Config is set before all else.
	Config *config.Loaded

	mu          sync.Mutex // guards cni and bridge
	cni, bridge string
}

// Set remembers that a network has been set up: the name of a CNI network, or monopod's own bridge.
func (n *PodNetwork) Set(cni, bridge string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cni, n.bridge = cni, bridge
}

// Text describes the network, and why it is that one; empty: it has not been set up.
func (n *PodNetwork) Text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cni == "" && n.bridge == "" {
		return ""
	}
	return networkText(n.Config, n.cni, n.bridge)
}

func networkText(cfg *config.Loaded, cni, bridge string) string {
	switch dir, source := cfg.CNIConfDir, cfg.Sources[cniKey]; {
	case cni != "":
		return fmt.Sprintf("CNI network %s, because of cniConfDir %s (%s); pods resolve each other's names only by clusterDNS", cni, dir, source)
	case dir != "":
		return fmt.Sprintf("monopod's own bridge %s, because cniConfDir %s (%s) has no CNI configuration", bridge, dir, source)
	}
	return fmt.Sprintf("monopod's own bridge %s, because cniConfDir is not set", bridge)
}
