package config

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
)

// APIServer configures the Kubernetes API that monopod itself serves.
type APIServer struct {
	Address        string              `koanf:"address"`
	MaxConnections int                 `koanf:"maxConnections"`
	Names          []string            `koanf:"names"`
	TokenFile      string              `koanf:"tokenFile"`
	Rules          map[string][]string `koanf:"rules"`
	Anonymous      bool                `koanf:"anonymous"`
	// NamespaceAccess are values of manifests.AnnotationAPIAccess by namespace.
	NamespaceAccess map[string]string `koanf:"namespaceAccess"`
	InertKinds      []string          `koanf:"inertKinds"`
	PodUpdates      string            `koanf:"podUpdates"`
}

// Values of apiServer.podUpdates.
const (
	podUpdatesInPlace    = "InPlace"
	podUpdatesKubernetes = "Kubernetes"
)

// ImmutablePods reports whether updates of pods are limited to what Kubernetes allows.
func (a *APIServer) ImmutablePods() bool { return a.PodUpdates == podUpdatesKubernetes }

// kubeAPIKeys returns the keys of the API that monopod serves; apiServerKeys are about an external API server.
func kubeAPIKeys() []Key {
	return []Key{
		{Path: "apiServer.address", Kind: kindString, doc: "`IP:PORT` on which monopod serves the Kubernetes API of this machine, with TLS, usually `127.0.0.1:6443`; `monopod kubeconfig` writes kubeconfigs. Permission to create privileged pods is root access to this machine. Empty: disabled. See `monopod docs kubernetes-api`."},
		{Path: "apiServer.maxConnections", Kind: kindInt, def: int64(256), doc: "Maximum number of open connections to `apiServer.address`; each watch needs one. One address, or IPv6 /64, of another machine may use half of them. Further ones are closed."},
		{Path: "apiServer.names", Kind: KindStrings, doc: "Additional names and IP addresses in the server certificate of `apiServer.address`, such as those of a proxy in front of it. It has `localhost`, `nodeName` and all addresses of this machine."},
		{Path: "apiServer.tokenFile", Kind: kindPath, doc: "File with bearer tokens that `apiServer.address` accepts in addition to client certificates, in the format of `authentication.tokenFile`: lines of `token,user,uid,\"group1,group2\"`. The groups `monopod:view`, `monopod:edit` and `monopod:admin` are roles. Empty: none."},
		{Path: "apiServer.rules", Kind: kindLists, doc: "Additional permissions of clients of `apiServer.address` by `user:<name>` or `group:<name>`: a role in a namespace, for example `edit@team-a`; resources to get, list and watch, for example `pods,pods/log@team-a`; with verbs in front, for example `create,delete:jobs.batch`; paths, for example `/metrics`; `*`: everything."},
		{Path: "apiServer.namespaceAccess", Kind: kindTexts, doc: "Kubernetes API access of pods by namespace, for example `{monitoring: view}`: pods without the annotation `monopod.dev/api-access` are treated as if they had it with this value. Ignored for sources with Pod Security `baseline` or `restricted`. Writing to such a namespace, or running commands in its pods, requires the same permissions."},
		{Path: "apiServer.inertKinds", Kind: KindStrings, doc: "Kinds that the Kubernetes API stores without effect, so that charts install unmodified: `" + strings.Join(kinds.Inert(), "`, `") + "`. Each write of one returns a warning. Roles and their bindings grant nothing, and a NetworkPolicy filters nothing. Empty: requests for these kinds fail. Removing a kind from the list hides its objects, and does not delete them."},
		{Path: "apiServer.podUpdates", Kind: kindString, def: podUpdatesInPlace, doc: "Which updates of pods the Kubernetes API accepts. `InPlace`: any; monopod restarts the containers that changed, or recreates the pod, and a warning names them. `Kubernetes`: only those that Kubernetes allows (images, `activeDeadlineSeconds`, added tolerations, metadata); others are refused with 422. `monopod apply` and files are not limited."},
		{Path: "apiServer.anonymous", Kind: kindBool, def: false, doc: "Whether `apiServer.address` answers unauthenticated requests for `/version`, `/healthz`, `/livez` and `/readyz`, as user `system:anonymous` of group `system:unauthenticated`; `apiServer.rules` may grant them additional permissions."},
	}
}

// kubeAPI validates the keys of the API that monopod serves.
func (c *configCheck) kubeAPI(cfg *APIServer) {
	if a, err := netip.ParseAddrPort(cfg.Address); cfg.Address != "" && (err != nil || a.Port() == 0) {
		c.add("apiServer.address", fmt.Sprintf("%q is not IP:PORT", cfg.Address), "write 127.0.0.1:6443; 0.0.0.0 and [::] are all addresses")
	}
	c.oneOf("apiServer.podUpdates", cfg.PodUpdates, podUpdatesInPlace, podUpdatesKubernetes)
	c.between("apiServer.maxConnections", cfg.MaxConnections, 2, 10_000)
	for _, name := range cfg.Names {
		if _, err := netip.ParseAddr(name); err != nil && len(validation.IsDNS1123Subdomain(name)) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 {
			c.add("apiServer.names", fmt.Sprintf("%q is neither a DNS name nor an IP address", name), "use lower-case letters, digits, - and ., without a port")
		}
	}
	for _, name := range cfg.InertKinds {
		c.oneOf("apiServer.inertKinds", name, kinds.Inert()...)
	}
	if err := access.CheckNamespaces(cfg.NamespaceAccess); err != nil {
		c.add("apiServer.namespaceAccess", strings.ReplaceAll(err.Error(), "\n", "; "), "write as in {monitoring: view}")
	}
	if _, err := access.ParseRules(cfg.Rules); err != nil {
		c.add("apiServer.rules", strings.ReplaceAll(err.Error(), "\n", "; "), "write as in {'user:ci': [edit@team-a, 'get:/metrics']}")
	}
}

// ServedKinds selects the kinds that the Kubernetes API serves.
func (c *Config) ServedKinds() kinds.Served { return kinds.Serve(c.APIServer.InertKinds) }

// AccessRules returns the rules of apiServer.rules.
func (c *Config) AccessRules() []access.Rule {
	rules, _ := access.ParseRules(c.APIServer.Rules) // validated with the configuration
	return rules
}
