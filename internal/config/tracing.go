package config

import (
	"fmt"
	"net"
)

// Tracing says whom the starts of pods are told to.
type Tracing struct {
	Endpoint               string `koanf:"endpoint"`
	SamplingRatePerMillion int    `koanf:"samplingRatePerMillion"`
}

func tracingKeys() []Key {
	return []Key{
		{Path: "tracing.endpoint", Kind: kindString, doc: "`host:port` of a collector of OpenTelemetry to which is told how long the start of each pod took, and what of it: by OTLP over gRPC without TLS, which is `localhost:4317` as a rule. Empty: nobody is told. See `monopod docs endpoints`."},
		{Path: "tracing.samplingRatePerMillion", Kind: kindInt, def: int64(0), doc: "Of a million starts, how many are told; 1000000: all. As for a kubelet, none unless it is set."},
	}
}

func (c *configCheck) tracing(cfg *Tracing) {
	const million = 1_000_000
	c.between("tracing.samplingRatePerMillion", cfg.SamplingRatePerMillion, 0, million)
	if cfg.Endpoint == "" {
		return
	}
	if host, port, err := net.SplitHostPort(cfg.Endpoint); err != nil || host == "" || port == "" {
		c.add("tracing.endpoint", fmt.Sprintf("%q is not host:port", cfg.Endpoint), "write localhost:4317")
	}
}
