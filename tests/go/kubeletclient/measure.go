package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// spread describes a sample of durations in microseconds.
type spread struct {
	Count  int     `json:"count"`
	P50Us  float64 `json:"p50_us"`
	P99Us  float64 `json:"p99_us"`
	MinUs  float64 `json:"min_us"`
	MaxUs  float64 `json:"max_us"`
	Errors int     `json:"errors"`
}

func summarise(sample []time.Duration, failed int) spread {
	s := spread{Count: len(sample), Errors: failed}
	if len(sample) == 0 {
		return s
	}
	slices.Sort(sample)
	at := func(q float64) float64 { return micros(sample[int(q*float64(len(sample)-1))]) }
	s.P50Us, s.P99Us, s.MinUs, s.MaxUs = at(0.5), at(0.99), at(0), at(1)
	return s
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// repeat runs call count times, one after the other. It returns the first error, if any, beside the sample.
func repeat(ctx context.Context, count int, call func(context.Context) error) (spread, error) {
	sample := make([]time.Duration, 0, count)
	failed, first := 0, error(nil)
	for range count {
		start := time.Now()
		if err := call(ctx); err != nil {
			failed++
			if first == nil {
				first = err
			}
			continue
		}
		sample = append(sample, time.Since(start))
	}
	return summarise(sample, failed), first
}

// rate is the result of several callers at once.
type rate struct {
	spread
	CallsPerS float64 `json:"calls_per_s"`
	ElapsedS  float64 `json:"elapsed_s"`
}

// flight keeps inFlight calls outstanding until count have been made or the duration is over, whichever is given.
func flight(ctx context.Context, inFlight, count int, duration time.Duration, call func(context.Context) error) (rate, error) {
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		sample []time.Duration
		failed int
		first  error
		issued atomic.Int64
	)
	start := time.Now()
	more := func() bool {
		if duration > 0 {
			return time.Since(start) < duration
		}
		return issued.Add(1) <= int64(count)
	}
	for range inFlight {
		group.Go(func() {
			own := make([]time.Duration, 0, 1024)
			bad, err := 0, error(nil)
			for more() {
				begin := time.Now()
				if e := call(ctx); e != nil {
					bad++
					err = e
					continue
				}
				own = append(own, time.Since(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			sample = append(sample, own...)
			failed += bad
			if first == nil {
				first = err
			}
		})
	}
	group.Wait()
	elapsed := time.Since(start)
	r := rate{spread: summarise(sample, failed), ElapsedS: elapsed.Seconds()}
	r.CallsPerS = float64(r.Count) / elapsed.Seconds()
	return r, first
}
