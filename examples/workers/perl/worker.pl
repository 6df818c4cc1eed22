#!/usr/bin/env perl
# A worker in Perl: JSON lines, core modules only. The protocol is in docs/worker-protocol.md.
use v5.20;
use warnings;
use IO::Handle;
use JSON::PP;
use MIME::Base64;
use Time::HiRes 'sleep';

# Messages use their own descriptor. All prints from here on go to standard error.
my ($in, $out);
if (my $fd = $ENV{LONGSHORE_WORKER_FD}) {
    open $in,  '<&=', $fd or die "descriptor $fd: $!";
    open $out, '>&=', $fd or die "descriptor $fd: $!";
} else {
    open $in,    '<&', \*STDIN  or die "standard input: $!";
    open $out,   '>&', \*STDOUT or die "standard output: $!";
    open STDIN,  '<',  '/dev/null' or die "/dev/null: $!";
    open STDOUT, '>&', \*STDERR or die "standard error: $!";
}
$out->autoflush(1);        # an answer must be out before the next call begins
STDOUT->autoflush(1);
$SIG{INT} = 'IGNORE';      # Ctrl-C is the pool's business

my $json = JSON::PP->new->utf8->allow_nonref;
sub say_to_pool { my %message = @_; print {$out} $json->encode(\%message), "\n" }

# The operations. An operation gets its arguments and a function that reports progress; it dies
# with a string, or with {kind => …, message => …} to say more.
my %operations = (
    noop   => sub { undef },
    echo   => sub { $_[0] },
    double => sub {
        my ($number) = @_;
        die { kind => 'bad_arguments', message => 'a number is needed' }
            if ref $number or ($number // '') !~ /^-?\d+(\.\d+)?$/;
        return 2 * $number;
    },
    slow => sub {
        my ($given, $progress) = @_;
        my ($steps, $ms) = ($given->{steps} // 10, $given->{ms} // 100);
        for my $step (1 .. $steps) {
            sleep $ms / 1000;
            $progress->({ step => $step, of => $steps });
        }
        return 'done';
    },
    fail  => sub { die { kind => 'handler', message => "$_[0]", chain => ['it was asked to'] } },
    print => sub { print $_[0]; length $_[0] },
);

sub perform {
    my ($call) = @_;
    my $operation = $operations{ $call->{operation} }
        or die { kind => 'unknown_operation', message => "no operation $call->{operation}" };
    my $bytes     = exists $call->{arguments_base64};
    my $arguments = $bytes ? decode_base64($call->{arguments_base64}) : $call->{arguments};
    my $value     = $operation->($arguments, sub {
        say_to_pool(type => 'progress', id => $call->{id}, value => $_[0]) if $call->{progress};
    });
    # Perl does not distinguish bytes from text: a call with bytes gets bytes back.
    return $bytes ? (value_base64 => encode_base64($value // '', '')) : (value => $value);
}

my $hello = $json->decode(scalar <$in> // exit 0);
if ($hello->{version} != 1) {
    say_to_pool(type => 'failed', message => "no version $hello->{version} here");
    exit 1;
}
# Connect to a database or load large data here: calls arrive only after `ready`.
say_to_pool(
    type => 'ready', version => 1, pid => $$ + 0, encoding => 'json', name => 'perl',
    operations => [map { { name => $_ } } sort keys %operations],
);
while (defined(my $line = <$in>)) {
    last unless $line =~ /\n\z/;    # half a line: the pool died
    my $message = $json->decode($line);
    my $type    = $message->{type};
    if ($type eq 'call') {
        my %answer = eval { (type => 'result', perform($message)) };
        if (my $error = $@) {
            %answer = ref $error eq 'HASH' ? %$error : (kind => 'handler', message => "$error");
            $answer{type} = 'error';
        }
        say_to_pool(%answer, id => $message->{id});
    }
    elsif ($type eq 'ping') { say_to_pool(type => 'pong', id => $message->{id}) }
    elsif ($type eq 'stop') { last }
    # A cancel is read only after its call is done: nothing is left to cancel.
}
# Clean up here.
