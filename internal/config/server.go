package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"monopod/node/secure"
)

// Server says who may ask over TCP, and where.
type Server struct {
	Address                 string         `koanf:"address"`
	Port                    int            `koanf:"port"`
	TLSCertFile             string         `koanf:"tlsCertFile"`
	TLSPrivateKeyFile       string         `koanf:"tlsPrivateKeyFile"`
	TLSMinVersion           string         `koanf:"tlsMinVersion"`
	TLSCipherSuites         []string       `koanf:"tlsCipherSuites"`
	Authentication          Authentication `koanf:"authentication"`
	Authorization           Authorization  `koanf:"authorization"`
	ReadOnlyPort            int            `koanf:"readOnlyPort"`
	HealthzPort             int            `koanf:"healthzPort"`
	HealthzBindAddress      string         `koanf:"healthzBindAddress"`
	MaxConnections          int            `koanf:"maxConnections"`
	EnableDebuggingHandlers bool           `koanf:"enableDebuggingHandlers"`
	EnableProfilingHandler  bool           `koanf:"enableProfilingHandler"`
}

// Authentication says how it is proved who asks.
type Authentication struct {
	X509      AuthenticationX509      `koanf:"x509"`
	TokenFile string                  `koanf:"tokenFile"`
	Webhook   AuthenticationWebhook   `koanf:"webhook"`
	Anonymous AuthenticationAnonymous `koanf:"anonymous"`
}

// AuthenticationX509 is about client certificates.
type AuthenticationX509 struct {
	ClientCAFile string `koanf:"clientCAFile"`
}

// AuthenticationWebhook is about tokens that the API server knows.
type AuthenticationWebhook struct {
	Enabled bool `koanf:"enabled"`
}

// AuthenticationAnonymous is about those who prove nothing.
type AuthenticationAnonymous struct {
	Enabled bool `koanf:"enabled"`
}

// Authorization says who may do what.
type Authorization struct {
	Mode  string              `koanf:"mode"`
	Rules map[string][]string `koanf:"rules"`
}

// Modes of authorization.
const (
	authorizeAlways  = "AlwaysAllow"
	AuthorizeRules   = "Rules"
	AuthorizeWebhook = "Webhook"
)

func serverKeys() []Key {
	return []Key{
		{Path: "address", Kind: kindString, def: "0.0.0.0", doc: "IP address on which `port` and `readOnlyPort` are served; `::` for IPv6 too."},
		{Path: "port", Kind: kindInt, def: int64(0), doc: "TCP port of the kubelet's API, with TLS, for those who prove who they are; a kubelet's is 10250. 0: none. See `monopod docs endpoints`."},
		{Path: "tlsCertFile", Kind: kindPath, derived: "the one that the API server has signed, with `serverTLSBootstrap`; else, and until there is one, a self-signed certificate, made and kept in `pki` in `rootDirectory`", doc: "Certificate of `port`, with those between it and its authority, in PEM. It is read again when it has changed."},
		{Path: "tlsPrivateKeyFile", Kind: kindPath, doc: "Key of `tlsCertFile`, in PEM."},
		{Path: "tlsMinVersion", Kind: kindString, derived: "`VersionTLS12`", doc: "Oldest version of TLS that is spoken: `VersionTLS12` or `VersionTLS13`."},
		{Path: "tlsCipherSuites", Kind: KindStrings, derived: "those that Go holds for safe", doc: "Cipher suites of TLS 1.2, as `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`."},
		{Path: "authentication.x509.clientCAFile", Kind: kindPath, doc: "Authorities whose client certificates count, in PEM; read again when the file has changed. The common name is the user, the organizations are the groups. Empty: none count."},
		{Path: "authentication.tokenFile", Kind: kindPath, doc: "File with bearer tokens that count, as kube-apiserver's: lines of `token,user,uid,\"group1,group2\"`; read again when it has changed. Empty: none count."},
		{Path: "authentication.webhook.enabled", Kind: kindBool, def: false, doc: "Whether bearer tokens count that the API server of `kubeconfig` knows, such as those of ServiceAccounts. Its answers count for 2 minutes."},
		{Path: "authentication.anonymous.enabled", Kind: kindBool, def: false, doc: "Whether who proves nothing is user `system:anonymous` of group `system:unauthenticated`, with the rights that `authorization.rules` gives these."},
		{Path: "authorization.mode", Kind: kindString, def: authorizeAlways, doc: "`AlwaysAllow`: who has proved who they are may do everything. `Rules`: what `authorization.rules` lists. `Webhook`: what the API server of `kubeconfig` lets them do with this node; its answers count for 5 minutes, a no for 30 seconds."},
		{Path: "authorization.rules", Kind: kindLists, doc: "What users and groups may do, by `user:<name>` or `group:<name>`: subresources of a node to get, as `metrics`, `stats`, `pods`, `healthz`, `configz`, `proxy` (all else, such as logs); with a verb before as `create:proxy` (exec); `*`: everything."},
		{Path: "readOnlyPort", Kind: kindInt, def: int64(0), doc: "TCP port on which anybody, without TLS, may read health, pods, metrics and stats; a kubelet's was 10255. 0: none."},
		{Path: "healthzPort", Kind: kindInt, def: int64(0), doc: "TCP port on which anybody may ask for health alone; a kubelet's is 10248. 0: none."},
		{Path: "healthzBindAddress", Kind: kindString, def: "127.0.0.1", doc: "IP address of `healthzPort`."},
		{Path: "maxConnections", Kind: kindInt, def: int64(secure.DefaultMaxConnections), doc: "Most connections at once to each of these ports; one address, or /64 of IPv6, gets half of them. Further ones are hung up on."},
		{Path: "enableDebuggingHandlers", Kind: kindBool, def: true, doc: "Whether `port` serves what looks into pods: exec, attach, portForward, run, containerLogs, runningpods, configz, profiles."},
		{Path: "enableProfilingHandler", Kind: kindBool, def: false, doc: "Whether profiles of monopod can be taken, at `/debug/pprof/` of the socket and of `port`."},
	}
}

// server checks who may ask over TCP.
func (c *configCheck) server(cfg *Server) {
	used := map[int]string{}
	for _, p := range []struct {
		key  string
		port int
	}{{"port", cfg.Port}, {"readOnlyPort", cfg.ReadOnlyPort}, {"healthzPort", cfg.HealthzPort}} {
		c.between(p.key, p.port, 0, 65535)
		if other := used[p.port]; p.port > 0 && other != "" {
			c.add(p.key, fmt.Sprintf("%d is %s already", p.port, other), "")
		}
		used[p.port] = p.key
	}
	for _, a := range []struct{ key, ip string }{{"address", cfg.Address}, {"healthzBindAddress", cfg.HealthzBindAddress}} {
		if _, err := netip.ParseAddr(a.ip); err != nil {
			c.add(a.key, fmt.Sprintf("%q is not an IP address", a.ip), "0.0.0.0 and :: are all addresses")
		}
	}
	c.between("maxConnections", cfg.MaxConnections, 2, 10000)
	if (cfg.TLSCertFile == "") != (cfg.TLSPrivateKeyFile == "") {
		c.add("tlsCertFile", "needs tlsPrivateKeyFile, and the other way round", "set both, or none for a self-signed certificate")
	}
	if _, err := secure.ParseVersion(cfg.TLSMinVersion); err != nil {
		c.add("tlsMinVersion", err.Error(), "")
	}
	if _, err := secure.ParseCipherSuites(cfg.TLSCipherSuites); err != nil {
		c.add("tlsCipherSuites", err.Error(), "")
	}
}

// access checks who may do what over TCP; kubeconfig says which API server could be asked.
func (c *configCheck) access(cfg *Server, kubeconfig string) {
	auth := &cfg.Authentication
	if cfg.Port > 0 && auth.X509.ClientCAFile == "" && auth.TokenFile == "" && !auth.Anonymous.Enabled && !auth.Webhook.Enabled {
		c.add("port", "nobody could prove who they are", "set authentication.x509.clientCAFile or authentication.tokenFile")
	}
	c.oneOf("authorization.mode", cfg.Authorization.Mode, authorizeAlways, AuthorizeRules, AuthorizeWebhook)
	if auth.Anonymous.Enabled && cfg.Authorization.Mode == authorizeAlways {
		c.add("authentication.anonymous.enabled", "gives no rights without authorization.mode Rules or Webhook", "write authorization: {mode: Rules, rules: {'group:system:unauthenticated': [healthz]}}")
	}
	for _, asks := range []struct {
		key string
		on  bool
	}{{"authentication.webhook.enabled", auth.Webhook.Enabled}, {"authorization.mode", cfg.Authorization.Mode == AuthorizeWebhook}} {
		if asks.on && kubeconfig == "" {
			c.add(asks.key, "there is no API server to ask", "set kubeconfig")
		}
	}
	if err := secure.Rules(cfg.Authorization.Rules).Check(); err != nil {
		c.add("authorization.rules", strings.ReplaceAll(err.Error(), "\n", "; "), "")
	}
}

// HostPort is an address with a port.
func HostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// IpsOf are addresses as certificates have them.
func IpsOf(addresses []string) []net.IP {
	var ips []net.IP
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip != nil && !slices.ContainsFunc(ips, ip.Equal) {
			ips = append(ips, ip)
		}
	}
	return ips
}
