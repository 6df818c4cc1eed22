#!/usr/bin/env perl
# IO::Async::Function: two processes; calls that do nothing, one at a time and WIDTH in flight.
use v5.20;
use warnings;
use Future::Utils 'fmap_void';
use IO::Async::Function;
use IO::Async::Loop;
use Time::HiRes 'time';

my ($seconds, $width) = @ENV{qw(SECONDS WIDTH)};
my $loop     = IO::Async::Loop->new;
my $function = IO::Async::Function->new(
    min_workers => 2,
    max_workers => 2,
    code        => sub { return },
);
$loop->add($function);

sub one_at_a_time {
    my ($limit) = @_;
    my @times;
    my $begun = my $last = time;
    while ($last - $begun < $limit) {
        $function->call(args => [])->get;
        my $now = time;
        push @times, ($now - $last) * 1e6;
        $last = $now;
    }
    return (sort { $a <=> $b } @times)[ @times / 2 ];
}

sub in_flight {
    my ($limit) = @_;
    my ($calls, $begun) = (0, time);
    my $all = fmap_void { $calls++; $function->call(args => []) }
        generate   => sub { time - $begun < $limit ? 1 : () },
        concurrent => $width;
    $all->get;
    return $calls / (time - $begun);
}

say 'version ', $IO::Async::Function::VERSION;
if ($seconds > 0) {
    in_flight($seconds / 4);
    say 'p50 ',  one_at_a_time($seconds);
    say 'rate ', in_flight($seconds);
}
