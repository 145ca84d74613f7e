package trial

import (
	"fmt"
	"strconv"
	"strings"
)

// Environ returns the environment variables of the command of a run, as NAME=value:
//
//	POD_WEB_IP=10.84.0.2          pod web of namespace default; POD_TEAM_WEB_IP is that of namespace team
//	POD_WEB_PORT_HTTP=8080        the port named http; one without a name is called by its number
//	POD_WEB_HOSTPORT_HTTP=40123   the port of this machine that leads to it
//	POD_WEB_PORT, POD_WEB_HOSTPORT  the first of them
//
// Letters are upper case, and characters that a name cannot have become underscores. Two pods with the same variables are an error.
func (r Report) Environ() ([]string, error) {
	var out []string
	owner := map[string]string{}
	for _, p := range r.Pods {
		prefix := "POD_" + variable(p.Name)
		if p.Namespace != "default" {
			prefix = "POD_" + variable(p.Namespace) + "_" + variable(p.Name)
		}
		if other := owner[prefix]; other != "" {
			return nil, fmt.Errorf("the variables %s_* would belong to both pod %s and pod %s; rename one of them", prefix, other, p.Key())
		}
		owner[prefix] = p.Key().String()
		if p.IP != "" {
			out = append(out, prefix+"_IP="+p.IP)
		}
		out = append(out, p.portVariables(prefix)...)
	}
	return out, nil
}

func (p Pod) portVariables(prefix string) []string {
	var out []string
	seen := map[string]bool{}
	set := func(name string, port int32) {
		if port != 0 && !seen[name] {
			seen[name] = true
			out = append(out, prefix+name+"="+strconv.Itoa(int(port)))
		}
	}
	for _, o := range p.Ports {
		name := strconv.Itoa(int(o.Container))
		if o.Name != "" {
			name = variable(o.Name)
		}
		set("_PORT_"+name, o.Container)
		set("_PORT", o.Container)
		set("_HOSTPORT_"+name, o.Host)
		set("_HOSTPORT", o.Host)
	}
	return out
}

// variable spells a name so that it can be part of that of a variable.
func variable(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(name))
}
