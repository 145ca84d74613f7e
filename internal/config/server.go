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

// Server configures the endpoints over TCP.
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

// Authentication configures how clients of these endpoints authenticate.
type Authentication struct {
	X509      AuthenticationX509      `koanf:"x509"`
	TokenFile string                  `koanf:"tokenFile"`
	Webhook   AuthenticationWebhook   `koanf:"webhook"`
	Anonymous AuthenticationAnonymous `koanf:"anonymous"`
}

// AuthenticationX509 configures client certificates.
type AuthenticationX509 struct {
	ClientCAFile string `koanf:"clientCAFile"`
}

// AuthenticationWebhook configures tokens that the API server verifies.
type AuthenticationWebhook struct {
	Enabled bool `koanf:"enabled"`
}

// AuthenticationAnonymous configures unauthenticated requests.
type AuthenticationAnonymous struct {
	Enabled bool `koanf:"enabled"`
}

// Authorization configures what authenticated users may do.
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
		{Path: "address", Kind: kindString, def: "0.0.0.0", doc: "IP address on which `port` and `readOnlyPort` listen; `::` includes IPv6."},
		{Path: "port", Kind: kindInt, def: int64(0), doc: "TCP port of the kubelet API, with TLS, for authenticated clients; a kubelet uses 10250. 0: disabled. See `monopod docs endpoints`."},
		{Path: "tlsCertFile", Kind: kindPath, derived: "with `serverTLSBootstrap` the one signed by the API server; otherwise, and until it exists, a self-signed one, created and kept in `pki` in `rootDirectory`", doc: "Certificate of `port` with its intermediate certificates, in PEM. It is re-read when the file changes."},
		{Path: "tlsPrivateKeyFile", Kind: kindPath, doc: "Private key of `tlsCertFile`, in PEM."},
		{Path: "tlsMinVersion", Kind: kindString, derived: "`VersionTLS12`", doc: "Minimum TLS version: `VersionTLS12` or `VersionTLS13`."},
		{Path: "tlsCipherSuites", Kind: KindStrings, derived: "the secure ones of Go", doc: "Cipher suites for TLS 1.2, as `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`."},
		{Path: "authentication.x509.clientCAFile", Kind: kindPath, doc: "CA certificates for client certificates, in PEM; re-read when the file changes. The common name is the user, the organizations are the groups. Empty: client certificates are not accepted."},
		{Path: "authentication.tokenFile", Kind: kindPath, doc: "File with accepted bearer tokens in the format of kube-apiserver: lines of `token,user,uid,\"group1,group2\"`; re-read when it changes. Empty: none."},
		{Path: "authentication.webhook.enabled", Kind: kindBool, def: false, doc: "Whether bearer tokens, such as those of ServiceAccounts, are verified by the API server of `kubeconfig`. Its answers are cached for 2 minutes."},
		{Path: "authentication.anonymous.enabled", Kind: kindBool, def: false, doc: "Whether unauthenticated requests are treated as user `system:anonymous` of group `system:unauthenticated`, with the rights that `authorization.rules` gives these."},
		{Path: "authorization.mode", Kind: kindString, def: authorizeAlways, doc: "`AlwaysAllow`: authenticated users may do everything. `Rules`: they may do what `authorization.rules` lists. `Webhook`: the API server of `kubeconfig` decides; permissions are cached for 5 minutes, denials for 30 seconds."},
		{Path: "authorization.rules", Kind: kindLists, doc: "Permissions by `user:<name>` or `group:<name>`: subresources of a node to get, such as `metrics`, `stats`, `pods`, `healthz`, `configz`, `proxy` (everything else, such as logs); with a verb in front, as `create:proxy` (exec); `*`: everything."},
		{Path: "readOnlyPort", Kind: kindInt, def: int64(0), doc: "TCP port that serves health, pods, metrics and stats without TLS and authentication; a kubelet used 10255. 0: disabled."},
		{Path: "healthzPort", Kind: kindInt, def: int64(0), doc: "TCP port that serves only health, without TLS and authentication; a kubelet uses 10248. 0: disabled."},
		{Path: "healthzBindAddress", Kind: kindString, def: "127.0.0.1", doc: "IP address of `healthzPort`."},
		{Path: "maxConnections", Kind: kindInt, def: int64(secure.DefaultMaxConnections), doc: "Maximum number of open connections to each of these ports; one address, or IPv6 /64, may use half of them. Further ones are closed."},
		{Path: "enableDebuggingHandlers", Kind: kindBool, def: true, doc: "Whether `port` serves requests that look into pods: exec, attach, portForward, run, containerLogs, runningpods, configz, profiles."},
		{Path: "enableProfilingHandler", Kind: kindBool, def: false, doc: "Whether profiles of monopod are served at `/debug/pprof/` on the socket and on `port`."},
	}
}

// server checks the keys about the endpoints over TCP.
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
		c.add("tlsCertFile", "needs tlsPrivateKeyFile, and vice versa", "set both, or none for a self-signed certificate")
	}
	if _, err := secure.ParseVersion(cfg.TLSMinVersion); err != nil {
		c.add("tlsMinVersion", err.Error(), "")
	}
	if _, err := secure.ParseCipherSuites(cfg.TLSCipherSuites); err != nil {
		c.add("tlsCipherSuites", err.Error(), "")
	}
}

// access checks the keys about authentication and authorization; kubeconfig is empty if no API server is configured.
func (c *configCheck) access(cfg *Server, kubeconfig string) {
	auth := &cfg.Authentication
	if cfg.Port > 0 && auth.X509.ClientCAFile == "" && auth.TokenFile == "" && !auth.Anonymous.Enabled && !auth.Webhook.Enabled {
		c.add("port", "clients could not authenticate", "set authentication.x509.clientCAFile or authentication.tokenFile")
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
			c.add(asks.key, "no API server is configured", "set kubeconfig")
		}
	}
	if err := secure.Rules(cfg.Authorization.Rules).Check(); err != nil {
		c.add("authorization.rules", strings.ReplaceAll(err.Error(), "\n", "; "), "")
	}
}

// HostPort returns an address with a port.
func HostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// IpsOf parses addresses for a certificate.
func IpsOf(addresses []string) []net.IP {
	var ips []net.IP
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip != nil && !slices.ContainsFunc(ips, ip.Equal) {
			ips = append(ips, ip)
		}
	}
	return ips
}
