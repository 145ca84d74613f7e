package network

import (
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/filter"
	"monopod/runner/ctrd/network/nat"
)

// PartsOf returns the parts of the default network of a Network after Init, for end-to-end tests only.
func PartsOf(n *Network) (bridge.Spec, *filter.Rules, nat.Backend) {
	return n.own().bridge, n.own().filter, n.own().nat
}

// NamesOf returns the name of the default network, the alias of its bridge and the path of its configuration, for end-to-end tests only.
func NamesOf(n *Network) (name, alias, conf string) {
	return OwnName, bridgeAlias(n.cfg.DataDir), n.ownConfPath()
}
